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

struct CandidateTime {
  double alone_us = 0;      // median, caches cold, the device at ease between runs; infinite: cuBLASLt cannot run it
  double sustained_us = 0;  // mean within a long row of runs, where power limits the clock; 0: not measured
};

/// Device time of each candidate: random operands, the product's own beta. First alone: L2 flushed before every run,
/// all candidates in turn within a round, so that clock and temperature treat them alike; those that are far behind
/// after one round are timed no more. Then, for products of 0.3 ms and more, the best ones in long rows: two kernels of
/// equal speed may differ by a fifth once the device reaches its power limit, as it does in a training step. Waits for
/// the device. Throws OutOfMemory when operands and flush buffer do not fit.
std::vector<CandidateTime> time_candidates(cublasLtHandle_t handle, const GemmPlan& plan, const DeviceBuffer& workspace,
                                           const std::vector<cublasLtMatmulHeuristicResult_t>& candidates,
                                           StreamHandle stream);

/// Index of the one with the least mean of both times, of those that have both, if any; an earlier one wins unless it
/// is more than half a per cent slower. (In a step the truth lies between the two: between GEMMs the device recovers.)
int choose(const std::vector<CandidateTime>& times);

}  // namespace esm::device
