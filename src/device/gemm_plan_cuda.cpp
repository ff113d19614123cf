#include "device/gemm_plan_cuda.h"

#include "base/check.h"
#include "base/narrow.h"
#include "device/cuda_check.h"

namespace esm::device {
namespace {

cudaDataType_t cuda_type(DType dtype) {
  if (dtype == DType::kF8E4M3) return CUDA_R_8F_E4M3;
  if (dtype == DType::kF8E5M2) return CUDA_R_8F_E5M2;
  if (dtype == DType::kF4E2M1x2) return CUDA_R_4F_E2M1;
  ESM_CHECK(dtype == DType::kF32 || dtype == DType::kBF16, "no GEMM on {}", dtype_name(dtype));
  return dtype == DType::kF32 ? CUDA_R_32F : CUDA_R_16BF;
}

cublasLtMatmulMatrixScale_t lt_scale(GemmScale scale) {
  switch (scale) {
    case GemmScale::kNone:
    case GemmScale::kTensor: return CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
    case GemmScale::kOuterVector: return CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    case GemmScale::kVector128: return CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
    case GemmScale::kBlock128: return CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
    case GemmScale::kMx32: return CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0;
    case GemmScale::kNv16: return CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3;
  }
  return CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
}

cublasLtEpilogue_t lt_epilogue(GemmEpilogue epilogue) {
  switch (epilogue) {
    case GemmEpilogue::kNone: return CUBLASLT_EPILOGUE_DEFAULT;
    case GemmEpilogue::kBias: return CUBLASLT_EPILOGUE_BIAS;
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

LtLayout make_layout(DType dtype, int64_t rows, int64_t cols, int64_t ld) {
  cublasLtMatrixLayout_t layout = nullptr;
  ESM_CUBLASLT(cublasLtMatrixLayoutCreate(&layout, cuda_type(dtype), static_cast<uint64_t>(rows),
                                          static_cast<uint64_t>(cols), ld));
  return LtLayout(layout);
}

template <class T>
void set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  ESM_CUBLASLT(cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof value));
}

template <class T>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
  ESM_CUBLASLT(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value));
}

struct PreferenceDeleter {
  void operator()(cublasLtMatmulPreference_t preference) const { cublasLtMatmulPreferenceDestroy(preference); }
};

}  // namespace

GemmPlan::GemmPlan(const GemmDesc& desc) : desc_(desc) {
  check(desc);
  cublasLtMatmulDesc_t matmul = nullptr;
  ESM_CUBLASLT(cublasLtMatmulDescCreate(&matmul, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  matmul_.reset(matmul);
  set(matmul, CUBLASLT_MATMUL_DESC_TRANSA, desc.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(matmul, CUBLASLT_MATMUL_DESC_TRANSB, desc.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(matmul, CUBLASLT_MATMUL_DESC_EPILOGUE, lt_epilogue(desc.epilogue));
  if (desc.epilogue != GemmEpilogue::kNone)
    set(matmul, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<int32_t>(cuda_type(desc.bias_type())));
  if (desc.device_factors)
    set(matmul, CUBLASLT_MATMUL_DESC_POINTER_MODE, static_cast<int32_t>(CUBLASLT_POINTER_MODE_DEVICE));
  if (desc.in_codes()) {
    set(matmul, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, static_cast<int32_t>(lt_scale(desc.scale_a)));
    set(matmul, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, static_cast<int32_t>(lt_scale(desc.scale_b)));
    set(matmul, CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<int8_t>(desc.fast_accumulation ? 1 : 0));
  }
  a_ = desc.transpose_a ? make_layout(desc.a, desc.k, desc.m, desc.lda) : make_layout(desc.a, desc.m, desc.k, desc.lda);
  b_ = desc.transpose_b ? make_layout(desc.b, desc.n, desc.k, desc.ldb) : make_layout(desc.b, desc.k, desc.n, desc.ldb);
  d_ = make_layout(desc.d, desc.m, desc.n, desc.ldd);
}

void GemmPlan::set_bias_pointer(const void* pointer) const {
  set(matmul_.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, pointer);
}

void GemmPlan::set_scale_pointers(const void* a, const void* b) const {
  set(matmul_.get(), CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, a);
  set(matmul_.get(), CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, b);
}

// cuBLASLt reads alignment and presence off these pointers when it proposes and checks: any address like those of a
// launch will do.
void GemmPlan::set_placeholders(const DeviceBuffer& workspace) const {
  const void* address = workspace.as<std::byte>() + static_cast<ptrdiff_t>(desc_.alignment_bytes);
  if (desc_.epilogue != GemmEpilogue::kNone) set_bias_pointer(address);
  if (desc_.in_codes()) set_scale_pointers(address, address);
}

std::vector<cublasLtMatmulHeuristicResult_t> GemmPlan::proposals(cublasLtHandle_t handle, const DeviceBuffer& workspace,
                                                                 int count) const {
  cublasLtMatmulPreference_t raw = nullptr;
  ESM_CUBLASLT(cublasLtMatmulPreferenceCreate(&raw));
  const std::unique_ptr<std::remove_pointer_t<cublasLtMatmulPreference_t>, PreferenceDeleter> preference(raw);
  set(raw, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(workspace.bytes()));
  set(raw, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  const auto alignment = narrow<uint32_t>(desc_.alignment_bytes);
  for (const auto attribute : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                               CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    set(raw, attribute, alignment);
  set_placeholders(workspace);

  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(count));
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle, matmul_.get(), a_.get(), b_.get(), d_.get(),
                                                               d_.get(), raw, count, results.data(), &found);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) return {};
  ESM_CUBLASLT(status);
  results.resize(static_cast<size_t>(found));
  std::erase_if(results, [&](const cublasLtMatmulHeuristicResult_t& r) {
    return r.state != CUBLAS_STATUS_SUCCESS || static_cast<int64_t>(r.workspaceSize) > workspace.bytes();
  });
  return results;
}

bool GemmPlan::accepts(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t& candidate, const DeviceBuffer& workspace,
                       int64_t* needed_bytes) const {
  set_placeholders(workspace);
  cublasLtMatmulHeuristicResult_t result{};
  const cublasStatus_t status =
      cublasLtMatmulAlgoCheck(handle, matmul_.get(), a_.get(), b_.get(), d_.get(), d_.get(), &candidate, &result);
  *needed_bytes = static_cast<int64_t>(result.workspaceSize);
  return status == CUBLAS_STATUS_SUCCESS && *needed_bytes <= workspace.bytes();
}

void GemmPlan::launch(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t& candidate, const DeviceBuffer& workspace,
                      const GemmArgs& args, StreamHandle stream) const {
  ESM_CUBLASLT(queue(handle, candidate, workspace, args, stream));
}

bool GemmPlan::try_launch(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t& candidate, const DeviceBuffer& workspace,
                          const GemmArgs& args, StreamHandle stream) const {
  const cublasStatus_t status = queue(handle, candidate, workspace, args, stream);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) return false;
  ESM_CUBLASLT(status);
  return true;
}

cublasStatus_t GemmPlan::queue(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t& candidate,
                               const DeviceBuffer& workspace, const GemmArgs& args, StreamHandle stream) const {
  const auto aligned = [&](const void* pointer) {
    return pointer != nullptr &&
           reinterpret_cast<uintptr_t>(pointer) % static_cast<uintptr_t>(desc_.alignment_bytes) == 0;
  };
  const bool has_bias = desc_.epilogue == GemmEpilogue::kBias;
  ESM_CHECK(aligned(args.a) && aligned(args.b) && aligned(args.d), "missing or misaligned operand of {}", text(desc_));
  ESM_CHECK(args.c == nullptr || (desc_.accumulate && aligned(args.c)), "misplaced or misaligned C of {}", text(desc_));
  ESM_CHECK(has_bias ? aligned(args.bias) : args.bias == nullptr, "missing or misplaced bias of {}", text(desc_));
  const auto good_scale = [](GemmScale scale, const void* pointer) {
    if (scale == GemmScale::kNone) return pointer == nullptr;
    return pointer != nullptr && reinterpret_cast<uintptr_t>(pointer) % 16 == 0;
  };
  ESM_CHECK(good_scale(desc_.scale_a, args.scale_a) && good_scale(desc_.scale_b, args.scale_b),
            "missing, misplaced or misaligned scale of {}", text(desc_));
  if (has_bias) set_bias_pointer(args.bias);
  if (desc_.in_codes()) set_scale_pointers(args.scale_a, args.scale_b);
  ESM_CHECK(desc_.device_factors == (args.factors != nullptr), "missing or misplaced factors of {}", text(desc_));
  const float one = 1.0f, zero = 0.0f;
  const float* alpha = desc_.device_factors ? args.factors : &one;
  const float* beta = desc_.device_factors ? args.factors + 1 : desc_.accumulate ? &one : &zero;
  const void* c = args.c != nullptr ? args.c : args.d;
  return cublasLtMatmul(handle, matmul_.get(), alpha, args.a, a_.get(), args.b, b_.get(), beta, c, d_.get(), args.d,
                        d_.get(), &candidate, workspace.get(), static_cast<size_t>(workspace.bytes()), stream);
}

}  // namespace esm::device
