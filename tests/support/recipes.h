// Models with quantized products.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "support/batches.h"
#include "support/compare.h"
#include "support/models.h"
#include "support/steps.h"

namespace esm::test {

inline const std::vector<precision::Precision> kQuantizedRecipes{
    precision::Precision::kFp8Delayed, precision::Precision::kFp8Current, precision::Precision::kFp8Block,
    precision::Precision::kFp8Outer,   precision::Precision::kMxfp8,      precision::Precision::kNvfp4};

/// Relative L2 distance of the gradients of the layers' matrices, which are made of quantized operands.
struct Departure {
  double worst = 0, mean = 0;
  std::string name;  // of the worst
};
inline Departure departure(models::Model& actual, models::Model& expected) {
  Departure result;
  int64_t count = 0;
  for (size_t u = 1; u + 1 < expected.units().size(); ++u)
    for (size_t i = 0; i < expected.units()[u]->entries().size(); ++i) {
      const nn::ParamSpec& spec = expected.units()[u]->entries()[i].spec;
      if (spec.kind != nn::ParamKind::kMatrix) continue;
      const double off = difference(values(actual.units()[u]->view(nn::Role::kGrad, i)),
                                    values(expected.units()[u]->view(nn::Role::kGrad, i)))
                             .relative_l2;
      if (!(off <= result.worst)) result = {off, result.mean, spec.name};
      result.mean += off;
      ++count;
    }
  result.mean /= static_cast<double>(count);
  return result;
}

struct QuantizedRun {
  std::vector<double> losses;
  std::vector<std::vector<uint8_t>> weights, scales;
};

/// Two micro-batches a step, batches of different fill, an evaluation in between; 512 tokens, at most 128 a sequence.
inline QuantizedRun quantized_steps(const Context& context, models::Esm2& model, int64_t steps) {
  train::Optimizer optimizer(context, model.units(), {}, {});
  train::StepQueue queue(context, optimizer);
  const auto comm = dist::make_single_comm();
  train::RunConfig config;
  config.train.micro_batches = 2;
  config.train.max_steps = steps;
  config.optimizer.lr = 2e-3;
  config.schedule.warmup_steps = 0;
  const std::vector<data::Batch> batches{make_batch({random_row(1, 128), random_row(2, 90)}, 512),
                                         make_batch({random_row(3, 128), random_row(4, 128), random_row(5, 128)}, 512)};
  size_t next = 0;
  QuantizedRun run;
  for (int64_t step = 0; step < steps; ++step) {
    train::train_step(
        {model, [&](data::Batch& batch) { batch = batches[next++ % batches.size()]; }, optimizer, queue, *comm, config},
        step);
    run.losses.push_back(queue.pop().loss());
    if (step % 3 == 1) run.losses.push_back(model.evaluate(batches[0]).loss_sum / 1e3);
  }
  run.weights = unit_bytes(model, nn::Role::kMaster);
  if (model.scales() != nullptr)
    for (const auto& [name, tensor] : model.scales()->state()) run.scales.push_back(bytes(tensor));
  return run;
}

}  // namespace esm::test
