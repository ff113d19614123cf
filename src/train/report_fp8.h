// `esmtrain report fp8`: one figure of the FP8 statistics, by layer and step. Pure functions, but for the reading.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "train/fp8_statistics.h"
#include "train/heat_map.h"

namespace esm::train {

struct Fp8Metric {
  std::string_view name;
  std::string_view meaning;
  bool of_tensors = false;  // of each tensor of a layer; else of the layer
  bool least = false;       // of several tensors the least value is the telling one; else the greatest
  bool log_scale = false;
};

/// underflow, overflow, amax, scale, mean, variance, grad_norm.
std::span<const Fp8Metric> fp8_metrics();

/// Rows of RUN/fp8.jsonl. Throws DataError when there is no such run, no such file, or no row yet.
std::vector<StepStatistics> read_run_statistics(const std::string& run);

/// The figure `metric` of all layers and steps; layers in the order of the rows. tensor: "fc1.x"; "": of
/// the tensors of each layer the telling one (see Fp8Metric), not finite when any is not. Throws ConfigError for an
/// unknown metric or tensor, with the nearest names, and for a tensor with a figure of layers; DataError when no row
/// has the figure.
HeatMap fp8_heat_map(const std::vector<StepStatistics>& rows, const std::string& metric, const std::string& tensor);

}  // namespace esm::train
