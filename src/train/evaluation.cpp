#include "train/evaluation.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace esm::train {
namespace {

EvalMetrics to_metrics(dist::Comm& comm, models::LossSums sums, int64_t sequences) {
  comm.all_reduce(std::as_writable_bytes(std::span(&sums.loss_sum, 1)), DType::kF64, dist::ReduceOp::kSum);
  std::array<int64_t, 3> counts{sums.n_scored, sums.n_correct, sequences};
  dist::all_reduce_values(comm, std::span<int64_t>(counts), dist::ReduceOp::kSum);
  EvalMetrics metrics;
  metrics.scored = counts[0];
  metrics.sequences = counts[2];
  const double n = static_cast<double>(counts[0]);
  metrics.loss = n > 0 ? sums.loss_sum / n : std::numeric_limits<double>::quiet_NaN();
  metrics.perplexity = std::exp(metrics.loss);
  metrics.accuracy = n > 0 ? static_cast<double>(counts[1]) / n : std::numeric_limits<double>::quiet_NaN();
  return metrics;
}

}  // namespace

Evaluator::Evaluator(std::map<std::string, data::Dataset> sets, const data::LoaderOptions& options)
    : sets_(std::move(sets)), options_(options) {}

std::string Evaluator::first_name() const { return sets_.empty() ? "" : sets_.begin()->first; }

std::optional<std::map<std::string, EvalMetrics>> Evaluator::run(models::Model& model, dist::Comm& comm,
                                                                 const EvalOptions& options) {
  std::map<std::string, EvalMetrics> results;
  data::Batch batch;
  for (const auto& [name, dataset] : sets_) {
    data::EvalLoader loader(dataset, options_);
    models::LossSums sums;
    int64_t sequences = 0;
    const int64_t last = options.max_batches > 0 ? std::min(options.max_batches, loader.batches()) : loader.batches();
    for (int64_t done = 0; done < last && loader.next(batch); ++done) {
      if (options.should_stop && options.should_stop()) return std::nullopt;
      if (options.status) options.status(fmt::format("validating {} {}/{}", name, done + 1, last));
      sums += model.evaluate(batch);
      sequences += static_cast<int64_t>(batch.segments.size());
    }
    results[name] = to_metrics(comm, sums, sequences);
  }
  return results;
}

}  // namespace esm::train
