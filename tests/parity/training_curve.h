// A short training in BF16 against the same one in FP32 on the CPU.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "support/batches.h"
#include "support/catch.h"
#include "support/models.h"
#include "support/steps.h"
#include "support/tolerance.h"
#include "train/optimizer.h"

namespace esm::test {

/// Losses (nats) of 30 steps of a small model from ESM-2's initial values, three batches in turn.
inline std::vector<double> training_curve(const Context& context, precision::Precision precision, double lr) {
  models::Esm2 model(context, small_config(2, 4, 16), {.precision = precision, .tokens_per_batch = 256});
  model.init_parameters(5);
  train::Optimizer optimizer(context, model.units(), {});
  std::vector<double> losses;
  for (uint64_t step = 0; step < 30; ++step) {
    losses.push_back(one_step(context, model, optimizer, some_batch(1 + 4 * (step % 3)), lr).loss());
  }
  return losses;
}

/// Greatest |a / b - 1|.
inline double apart(const std::vector<double>& a, const std::vector<double>& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] / b[i] - 1));
  return most;
}

/// Three times this learning rate, without warm-up, is on the edge of stability: any BF16 program parts from FP32 by
/// 0.2 nats there within 30 steps, and by 0.005 here.
inline void check_bf16_curve(const Context& context) {
  using precision::Precision;
  constexpr double kRate = 1e-3;
  const std::vector<double> exact = training_curve(Context{}, Precision::kFp32, kRate);
  const double bound = operation_tolerance(DType::kBF16, 1).relative_l2;
  CHECK(exact.back() < exact.front() - 0.3);
  CHECK(apart(training_curve(context, Precision::kBf16, kRate), exact) < bound);
  // Planted: steps too long by a fifth.
  CHECK(apart(training_curve(Context{}, Precision::kFp32, 1.2 * kRate), exact) > bound);
}

}  // namespace esm::test
