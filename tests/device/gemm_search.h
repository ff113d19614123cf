// Candidates of cuBLASLt for one product, gathered under other rules than the library's own (device/gemm.h), to see
// what those cost. For bench_gemm_search only.
#pragma once
#include <cublasLt.h>

#include <cstdint>
#include <string>
#include <vector>

#include "device/gemm_plan_cuda.h"

namespace esm::test {

/// How cuBLASLt is asked for proposals.
struct SearchRule {
  const char* name = "";
  int asked = 16;
  int64_t workspace_bytes = int64_t{32} << 20;
  uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  uint32_t alignment_bytes = 16;
  bool each_id = false;  // once for every algorithm number
};

struct SearchArgs {
  const void *a = nullptr, *b = nullptr, *c = nullptr, *bias = nullptr;
  void* d = nullptr;
  void* workspace = nullptr;
  int64_t workspace_bytes = 0;
};

class GemmSearch {
 public:
  explicit GemmSearch(const device::GemmDesc& desc);

  std::vector<cublasLtMatmulAlgo_t> proposals(const SearchRule& rule) const;
  /// `seeds` with another custom option, or with another cluster shape, CTA order and tile, as far as cuBLASLt accepts
  /// them: those with a seed's tile first, the rest in random order.
  std::vector<cublasLtMatmulAlgo_t> neighbours(const std::vector<cublasLtMatmulAlgo_t>& seeds,
                                               int64_t workspace_bytes) const;
  /// False when cuBLASLt refuses to run it.
  bool run(const cublasLtMatmulAlgo_t& algo, const SearchArgs& args, cudaStream_t stream) const;

 private:
  bool accepts(const cublasLtMatmulAlgo_t& algo, int64_t workspace_bytes) const;

  device::GemmDesc desc_;
  device::LtHandle handle_;
  std::unique_ptr<std::remove_pointer_t<cublasLtMatmulDesc_t>, device::LtMatmulDeleter> matmul_;
  device::LtLayout a_, b_, d_;
};

bool same(const cublasLtMatmulAlgo_t& a, const cublasLtMatmulAlgo_t& b);
/// "id 66 tile 24 stages 36 split 1/0 swizzle 1 custom 0 inner 0 cluster 3": numbers of cublasLt.h.
std::string describe(const cublasLtMatmulAlgo_t& algo);

}  // namespace esm::test
