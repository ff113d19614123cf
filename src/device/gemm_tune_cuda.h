// Timing of cuBLASLt's proposals for one product. Private to gemm_cuda.cpp.
#pragma once
#include <vector>

#include "device/gemm_plan_cuda.h"

namespace esm::device {

/// `found`, then others of the same algorithms: every combination of the tiles, cluster shapes and custom options that
/// occur in `found` and in cuBLASLt's proposals for the product without its epilogue, as far as cuBLASLt accepts it.
/// Its own ranking misses up to 11 % (H200, 650M: first product of the feed-forward part).
std::vector<cublasLtMatmulHeuristicResult_t> with_neighbours(cublasLtHandle_t handle, const GemmPlan& plan,
                                                             const DeviceBuffer& workspace,
                                                             std::vector<cublasLtMatmulHeuristicResult_t> found);

/// Median device microseconds of each candidate: random operands, the product's own beta, L2 flushed before every run,
/// all candidates in turn within a round, so that clock and temperature treat them alike. Those that are far behind
/// after two rounds are timed no more. Waits for the device.
/// Throws OutOfMemory when operands and flush buffer do not fit.
std::vector<double> time_candidates(cublasLtHandle_t handle, const GemmPlan& plan, const DeviceBuffer& workspace,
                                    const std::vector<cublasLtMatmulHeuristicResult_t>& candidates,
                                    StreamHandle stream);

/// Index of the fastest; an earlier one wins unless it is more than half a per cent slower.
int choose(const std::vector<double>& microseconds);

}  // namespace esm::device
