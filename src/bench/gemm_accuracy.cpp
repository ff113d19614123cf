#include "bench/gemm_accuracy.h"

#include <algorithm>
#include <cmath>

namespace esm::bench {

SumError sum_error(const std::vector<double>& got, const std::vector<double>& want) {
  double off = 0, norm = 0, worst = 0, shrunk = 0, magnitude = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double error = got[i] - want[i];
    off += error * error;
    norm += want[i] * want[i];
    worst = std::max(worst, std::abs(error));
    shrunk -= std::copysign(error, error * want[i]);
    magnitude += std::abs(want[i]);
  }
  const auto n = static_cast<double>(want.size());
  return {
      .relative_l2 = std::sqrt(off / norm), .worst = worst / std::sqrt(norm / n), .toward_zero = shrunk / magnitude};
}

}  // namespace esm::bench
