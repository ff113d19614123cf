#include "train/metrics_csv.h"

#include <charconv>
#include <cmath>
#include <filesystem>
#include <utility>

#include "base/check.h"
#include "train/step_rows.h"

namespace esm::train {
namespace {

std::string header() {
  std::string line;
  visit_columns(StepMetrics{}, [&](std::string_view name, auto) { line += fmt::format(",{}", name); });
  return line.substr(1);
}

std::string field(double value) { return std::isfinite(value) ? fmt::format("{:.17g}", value) : ""; }
std::string field(int64_t value) { return fmt::format("{}", value); }
std::string field(bool value) { return value ? "true" : "false"; }

// Of a file of ours; editors and tools may have changed its line ends.
bool has_our_columns(const std::string& text) {
  return text.starts_with(header() + "\r\n") || text.starts_with(header() + "\n");
}

std::string text_of(const std::string& path) { return std::filesystem::exists(path) ? read_text_file(path) : ""; }

// The path of a file that a row can be appended to.
const std::string& prepared(const std::string& path, int64_t keep_through_step) {
  check_metrics_csv(path);
  cut_metrics_csv(path, keep_through_step);
  if (!has_our_columns(text_of(path))) write_file_atomically(path, header() + "\r\n");
  return path;
}

}  // namespace

MetricsCsv::MetricsCsv(const std::string& path, int64_t keep_through_step) : file_(prepared(path, keep_through_step)) {}

void MetricsCsv::append(const StepMetrics& row) {
  std::string line;
  visit_columns(row, [&](std::string_view, auto value) { line.append(1, ',').append(field(value)); });
  file_.append(line.substr(1) + "\r");
}

void check_metrics_csv(const std::string& path) {
  const std::string text = text_of(path);
  if (text.find('\n') != std::string::npos && !has_our_columns(text))
    fail<DataError>("{} has other columns than this run writes ({}); move it away, or set run.csv to false", path,
                    header());
}

void cut_metrics_csv(const std::string& path, int64_t keep_through_step) {
  if (!has_our_columns(text_of(path))) return;  // somebody else's, or torn in its first line
  bool first = true;
  cut_lines(path, [&](std::string_view line, bool ended) {
    if (!ended && !line.ends_with('\r')) return false;
    if (std::exchange(first, false)) return true;
    int64_t step = 0;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), step);
    return error == std::errc() && end != line.data() + line.size() && *end == ',' && step <= keep_through_step;
  });
}

}  // namespace esm::train
