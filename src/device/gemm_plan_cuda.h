// One product ready to run: cuBLASLt's descriptors and the chosen algorithm. Private to gemm_cuda.cpp and
// gemm_tune_cuda.cpp.
#pragma once
#include <cublasLt.h>

#include <memory>
#include <type_traits>
#include <vector>

#include "device/gemm.h"
#include "device/memory.h"

namespace esm::device {

struct LtHandleDeleter {
  void operator()(cublasLtHandle_t handle) const { cublasLtDestroy(handle); }
};
using LtHandle = std::unique_ptr<std::remove_pointer_t<cublasLtHandle_t>, LtHandleDeleter>;

struct LtMatmulDeleter {
  void operator()(cublasLtMatmulDesc_t desc) const { cublasLtMatmulDescDestroy(desc); }
};
struct LtLayoutDeleter {
  void operator()(cublasLtMatrixLayout_t layout) const { cublasLtMatrixLayoutDestroy(layout); }
};
using LtLayout = std::unique_ptr<std::remove_pointer_t<cublasLtMatrixLayout_t>, LtLayoutDeleter>;

class GemmPlan {
 public:
  explicit GemmPlan(const GemmDesc& desc);

  /// cuBLASLt's proposals, best guess first, at most `count`, that fit the workspace. Only reduction schemes whose
  /// partial sums are FP32 outside D: those neither lose precision nor depend on timing.
  std::vector<cublasLtMatmulHeuristicResult_t> proposals(cublasLtHandle_t handle, const DeviceBuffer& workspace,
                                                         int count) const;
  /// True when `algo` can run this product here within the workspace; fills its needs into `result`.
  bool accepts(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t& algo, const DeviceBuffer& workspace,
               int64_t* needed_bytes) const;
  void launch(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t& algo, const DeviceBuffer& workspace,
              const GemmArgs& args, StreamHandle stream) const;
  /// The same; false when cuBLASLt refuses: it accepts some FP8 settings that it then cannot run.
  bool try_launch(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t& algo, const DeviceBuffer& workspace,
                  const GemmArgs& args, StreamHandle stream) const;

  const GemmDesc& desc() const { return desc_; }
  cublasLtMatmulAlgo_t algo{};
  GemmPlanInfo info;

 private:
  void set_bias_pointer(const void* pointer) const;
  void set_scale_pointers(const void* a, const void* b) const;
  void set_placeholders(const DeviceBuffer& workspace) const;
  cublasStatus_t queue(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t& algo, const DeviceBuffer& workspace,
                       const GemmArgs& args, StreamHandle stream) const;

  GemmDesc desc_;
  std::unique_ptr<std::remove_pointer_t<cublasLtMatmulDesc_t>, LtMatmulDeleter> matmul_;
  LtLayout a_, b_, d_;  // C has D's layout
};

}  // namespace esm::device
