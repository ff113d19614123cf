#include "tests/device/gemm_search.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "device/cuda_check.h"

namespace esm::test {
namespace {

cudaDataType_t cuda_type(DType dtype) { return dtype == DType::kF32 ? CUDA_R_32F : CUDA_R_16BF; }

device::LtLayout layout(DType dtype, int64_t rows, int64_t cols, int64_t ld) {
  cublasLtMatrixLayout_t raw = nullptr;
  ESM_CUBLASLT(
      cublasLtMatrixLayoutCreate(&raw, cuda_type(dtype), static_cast<uint64_t>(rows), static_cast<uint64_t>(cols), ld));
  return device::LtLayout(raw);
}

template <class T>
void set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  ESM_CUBLASLT(cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof value));
}

template <class T>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
  ESM_CUBLASLT(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value));
}

template <class T>
T config(const cublasLtMatmulAlgo_t& algo, cublasLtMatmulAlgoConfigAttributes_t attribute) {
  T value{};
  size_t written = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoConfigGetAttribute(&algo, attribute, &value, sizeof value, &written);
  return status == CUBLAS_STATUS_SUCCESS ? value : T{};
}

template <class T>
bool with(cublasLtMatmulAlgo_t& algo, cublasLtMatmulAlgoConfigAttributes_t attribute, T value) {
  return cublasLtMatmulAlgoConfigSetAttribute(&algo, attribute, &value, sizeof value) == CUBLAS_STATUS_SUCCESS;
}

std::vector<uint32_t> tiles_of(const cublasLtMatmulAlgo_t& algo) {
  size_t bytes = 0;
  if (cublasLtMatmulAlgoCapGetAttribute(&algo, CUBLASLT_ALGO_CAP_TILE_IDS, nullptr, 0, &bytes) != CUBLAS_STATUS_SUCCESS)
    return {};
  std::vector<uint32_t> tiles(bytes / sizeof(uint32_t));
  if (cublasLtMatmulAlgoCapGetAttribute(&algo, CUBLASLT_ALGO_CAP_TILE_IDS, tiles.data(), bytes, &bytes) !=
      CUBLAS_STATUS_SUCCESS)
    return {};
  return tiles;
}

struct PreferenceDeleter {
  void operator()(cublasLtMatmulPreference_t preference) const { cublasLtMatmulPreferenceDestroy(preference); }
};

}  // namespace

GemmSearch::GemmSearch(const device::GemmDesc& g)
    : desc_(g),
      a_(g.transpose_a ? layout(g.a, g.k, g.m, g.lda) : layout(g.a, g.m, g.k, g.lda)),
      b_(g.transpose_b ? layout(g.b, g.n, g.k, g.ldb) : layout(g.b, g.k, g.n, g.ldb)),
      d_(layout(g.d, g.m, g.n, g.ldd)) {
  cublasLtHandle_t handle = nullptr;
  ESM_CUBLASLT(cublasLtCreate(&handle));
  handle_.reset(handle);
  cublasLtMatmulDesc_t matmul = nullptr;
  ESM_CUBLASLT(cublasLtMatmulDescCreate(&matmul, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  matmul_.reset(matmul);
  set(matmul, CUBLASLT_MATMUL_DESC_TRANSA, g.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  set(matmul, CUBLASLT_MATMUL_DESC_TRANSB, g.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  if (g.epilogue == device::GemmEpilogue::kBias) {
    set(matmul, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    set(matmul, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<int32_t>(cuda_type(g.d)));
    set(matmul, CUBLASLT_MATMUL_DESC_BIAS_POINTER, reinterpret_cast<const void*>(uintptr_t{1} << 20));
  }
}

std::vector<cublasLtMatmulAlgo_t> GemmSearch::proposals(const SearchRule& rule) const {
  cublasLtMatmulPreference_t raw = nullptr;
  ESM_CUBLASLT(cublasLtMatmulPreferenceCreate(&raw));
  const std::unique_ptr<std::remove_pointer_t<cublasLtMatmulPreference_t>, PreferenceDeleter> preference(raw);
  set(raw, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<uint64_t>(rule.workspace_bytes));
  set(raw, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, rule.reductions);
  for (const auto attribute : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                               CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    set(raw, attribute, rule.alignment_bytes);
  const cudaDataType_t in = cuda_type(desc_.a), out = cuda_type(desc_.d);
  std::vector<int> ids = {-1};
  if (rule.each_id) {
    ids.assign(128, 0);
    int count = 0;
    ESM_CUBLASLT(cublasLtMatmulAlgoGetIds(handle_.get(), CUBLAS_COMPUTE_32F, CUDA_R_32F, in, in, out, out,
                                          static_cast<int>(ids.size()), ids.data(), &count));
    ids.resize(static_cast<size_t>(count));
    set(raw, CUBLASLT_MATMUL_PREF_SEARCH_MODE, static_cast<uint32_t>(CUBLASLT_SEARCH_LIMITED_BY_ALGO_ID));
  }
  std::vector<cublasLtMatmulAlgo_t> result;
  for (const int id : ids) {
    std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<size_t>(rule.asked));
    if (id >= 0 && cublasLtMatmulAlgoInit(handle_.get(), CUBLAS_COMPUTE_32F, CUDA_R_32F, in, in, out, out, id,
                                          &found[0].algo) != CUBLAS_STATUS_SUCCESS)
      continue;
    int count = 0;
    if (cublasLtMatmulAlgoGetHeuristic(handle_.get(), matmul_.get(), a_.get(), b_.get(), d_.get(), d_.get(), raw,
                                       rule.asked, found.data(), &count) != CUBLAS_STATUS_SUCCESS)
      continue;
    found.resize(static_cast<size_t>(count));
    for (const auto& f : found)
      if (f.state == CUBLAS_STATUS_SUCCESS && static_cast<int64_t>(f.workspaceSize) <= rule.workspace_bytes)
        result.push_back(f.algo);
  }
  return result;
}

bool GemmSearch::accepts(const cublasLtMatmulAlgo_t& algo, int64_t workspace_bytes) const {
  cublasLtMatmulHeuristicResult_t result{};
  return cublasLtMatmulAlgoCheck(handle_.get(), matmul_.get(), a_.get(), b_.get(), d_.get(), d_.get(), &algo,
                                 &result) == CUBLAS_STATUS_SUCCESS &&
         static_cast<int64_t>(result.workspaceSize) <= workspace_bytes;
}

std::vector<cublasLtMatmulAlgo_t> GemmSearch::neighbours(const std::vector<cublasLtMatmulAlgo_t>& seeds,
                                                         int64_t workspace_bytes) const {
  std::vector<cublasLtMatmulAlgo_t> near, far;
  const auto add = [&](std::vector<cublasLtMatmulAlgo_t>& to, const cublasLtMatmulAlgo_t& algo) {
    const auto known = [&](const cublasLtMatmulAlgo_t& other) { return same(algo, other); };
    if (accepts(algo, workspace_bytes) && std::none_of(near.begin(), near.end(), known) &&
        std::none_of(far.begin(), far.end(), known))
      to.push_back(algo);
  };
  const auto add_tile = [&](std::vector<cublasLtMatmulAlgo_t>& to, const cublasLtMatmulAlgo_t& seed, uint32_t tile) {
    for (uint16_t cluster = 0; cluster <= CUBLASLT_CLUSTER_SHAPE_1x8x1; ++cluster) {
      if (cluster == 1) continue;  // not a shape
      for (const uint32_t swizzle : {0u, 1u}) {
        cublasLtMatmulAlgo_t algo = seed;
        if (with(algo, CUBLASLT_ALGO_CONFIG_TILE_ID, tile) &&
            with(algo, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, cluster) &&
            with(algo, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, swizzle))
          add(to, algo);
      }
    }
  };
  for (const cublasLtMatmulAlgo_t& seed : seeds) {
    int32_t custom_max = 0;
    size_t written = 0;
    cublasLtMatmulAlgoCapGetAttribute(&seed, CUBLASLT_ALGO_CAP_CUSTOM_OPTION_MAX, &custom_max, sizeof custom_max,
                                      &written);
    for (uint32_t custom = 0; custom <= static_cast<uint32_t>(std::clamp(custom_max, 0, 32)); ++custom) {
      cublasLtMatmulAlgo_t algo = seed;
      if (with(algo, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, custom)) add(near, algo);
    }
    add_tile(near, seed, config<uint32_t>(seed, CUBLASLT_ALGO_CONFIG_TILE_ID));
  }
  for (const cublasLtMatmulAlgo_t& seed : seeds)
    for (const uint32_t tile : tiles_of(seed)) add_tile(far, seed, tile);
  std::shuffle(far.begin(), far.end(), std::mt19937_64(1));
  near.insert(near.end(), far.begin(), far.end());
  return near;
}

bool GemmSearch::run(const cublasLtMatmulAlgo_t& algo, const SearchArgs& args, cudaStream_t stream) const {
  if (args.bias != nullptr) set(matmul_.get(), CUBLASLT_MATMUL_DESC_BIAS_POINTER, args.bias);
  const float alpha = 1.0f, beta = desc_.accumulate ? 1.0f : 0.0f;
  return cublasLtMatmul(handle_.get(), matmul_.get(), &alpha, args.a, a_.get(), args.b, b_.get(), &beta,
                        args.c != nullptr ? args.c : args.d, d_.get(), args.d, d_.get(), &algo, args.workspace,
                        static_cast<size_t>(args.workspace_bytes), stream) == CUBLAS_STATUS_SUCCESS;
}

bool same(const cublasLtMatmulAlgo_t& a, const cublasLtMatmulAlgo_t& b) { return std::memcmp(&a, &b, sizeof a) == 0; }

std::string describe(const cublasLtMatmulAlgo_t& algo) {
  const auto number = [&](cublasLtMatmulAlgoConfigAttributes_t attribute) { return config<uint32_t>(algo, attribute); };
  const auto short_number = [&](cublasLtMatmulAlgoConfigAttributes_t attribute) {
    return config<uint16_t>(algo, attribute);
  };
  return fmt::format("id {} tile {} stages {} split {}/{} swizzle {} custom {} inner {} cluster {}",
                     number(CUBLASLT_ALGO_CONFIG_ID), number(CUBLASLT_ALGO_CONFIG_TILE_ID),
                     number(CUBLASLT_ALGO_CONFIG_STAGES_ID), number(CUBLASLT_ALGO_CONFIG_SPLITK_NUM),
                     number(CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME), number(CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING),
                     number(CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION), short_number(CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID),
                     short_number(CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID));
}

}  // namespace esm::test
