#include "train/report_fp8.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <map>

#include "base/check.h"
#include "config/suggest.h"

namespace esm::train {
namespace {

namespace fs = std::filesystem;

constexpr std::array kMetrics{
    Fp8Metric{.name = "underflow", .meaning = "share of codes that are 0", .of_tensors = true},
    Fp8Metric{.name = "overflow", .meaning = "share of codes at the greatest magnitude", .of_tensors = true},
    Fp8Metric{.name = "amax", .meaning = "greatest magnitude before scaling", .of_tensors = true, .log_scale = true},
    Fp8Metric{
        .name = "scale", .meaning = "factor before rounding", .of_tensors = true, .least = true, .log_scale = true},
    Fp8Metric{.name = "mean", .meaning = "of the layer's output"},
    Fp8Metric{.name = "variance", .meaning = "of the layer's output", .log_scale = true},
    Fp8Metric{.name = "grad_norm", .meaning = "of the layer's parameters", .log_scale = true},
};

const Fp8Metric& find_metric(const std::string& name) {
  std::vector<std::string> names;
  std::string all;
  for (const Fp8Metric& metric : kMetrics) {
    if (metric.name == name) return metric;
    names.emplace_back(metric.name);
    all += fmt::format("{}{}", all.empty() ? "" : ", ", metric.name);
  }
  fail<ConfigError>("unknown metric '{}', expected {}{}", name, all,
                    config::did_you_mean(config::suggest(name, names)));
}

void check_tensor(const std::vector<StepStatistics>& rows, const std::string& tensor) {
  std::vector<std::string> names;
  for (const StepStatistics& row : rows)
    for (const TensorStatistics& t : row.tensors) {
      if (t.tensor == tensor) return;
      if (std::find(names.begin(), names.end(), t.tensor) == names.end()) names.push_back(t.tensor);
    }
  std::string all;
  for (const std::string& name : names) all += fmt::format("{}{}", all.empty() ? "" : ", ", name);
  fail<ConfigError>("unknown tensor '{}', this run has {}{}", tensor, all.empty() ? "none" : all,
                    config::did_you_mean(config::suggest(tensor, names)));
}

double value_of(const TensorStatistics& t, std::string_view metric) {
  if (metric == "underflow") return t.underflow;
  if (metric == "overflow") return t.overflow;
  return metric == "amax" ? t.amax : t.scale;
}

double value_of(const LayerStatistics& l, std::string_view metric) {
  if (metric == "mean") return l.mean;
  return metric == "variance" ? l.variance : l.grad_norm;
}

// Figures by layer and step. Layers stand in the order of the rows; one that a later row brings stands behind the one
// before it there.
class Cells {
 public:
  explicit Cells(bool least) : least_(least) {}

  void begin_step(int64_t step) {
    map_.steps.push_back(step);
    last_ = 0;
  }
  void add(const std::string& layer, double value) {
    auto& rows = map_.rows;
    auto found = std::find(rows.begin(), rows.end(), layer);
    if (found == rows.end()) found = rows.insert(rows.begin() + last_, layer);
    last_ = found - rows.begin() + 1;
    const auto [cell, is_first] = values_.emplace(std::pair{layer, map_.steps.back()}, value);
    if (is_first || !std::isfinite(cell->second)) return;
    if (!std::isfinite(value) || (least_ ? value < cell->second : value > cell->second)) cell->second = value;
  }
  HeatMap map() {
    for (const std::string& row : map_.rows)
      for (const int64_t step : map_.steps) {
        const auto cell = values_.find({row, step});
        map_.cells.push_back(cell == values_.end() ? std::nullopt : std::optional(cell->second));
      }
    return std::move(map_);
  }

 private:
  bool least_;
  HeatMap map_;
  ptrdiff_t last_ = 0;  // where a new layer of this step goes
  std::map<std::pair<std::string, int64_t>, double> values_;
};

}  // namespace

std::span<const Fp8Metric> fp8_metrics() { return kMetrics; }

std::vector<StepStatistics> read_run_statistics(const std::string& run) {
  if (!fs::is_directory(run)) fail<DataError>("no such run: {} is not a folder", run);
  const std::string path = (fs::path(run) / "fp8.jsonl").string();
  if (!fs::exists(path))
    fail<DataError>(
        "{} has no FP8 statistics (fp8.jsonl): a run writes them when it computes in FP8 and "
        "fp8.statistics_every_steps "
        "is above 0",
        run);
  std::vector<StepStatistics> rows = read_statistics(path);
  if (rows.empty()) fail<DataError>("{} has no row yet", path);
  return rows;
}

HeatMap fp8_heat_map(const std::vector<StepStatistics>& rows, const std::string& metric, const std::string& tensor) {
  const Fp8Metric& wanted = find_metric(metric);
  if (!wanted.of_tensors && !tensor.empty())
    fail<ConfigError>("'{}' is a figure of whole layers; leave the tensor out", metric);
  if (!tensor.empty()) check_tensor(rows, tensor);
  Cells cells(wanted.least);
  for (const StepStatistics& row : rows) {
    cells.begin_step(row.step);
    if (wanted.of_tensors) {
      for (const TensorStatistics& t : row.tensors)
        if (tensor.empty() || t.tensor == tensor) cells.add(t.layer, value_of(t, metric));
    } else {
      for (const LayerStatistics& l : row.layers) cells.add(l.layer, value_of(l, metric));
    }
  }
  HeatMap map = cells.map();
  if (map.rows.empty()) fail<DataError>("the FP8 statistics of this run hold no '{}'", metric);
  map.title = fmt::format("{} ({})", metric, wanted.meaning);
  if (!tensor.empty())
    map.title += " of " + tensor;
  else if (wanted.of_tensors)
    map.title += fmt::format(", {} of each layer's tensors", wanted.least ? "least" : "greatest");
  map.log_scale = wanted.log_scale;
  return map;
}

}  // namespace esm::train
