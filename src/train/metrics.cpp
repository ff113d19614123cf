#include "train/metrics.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/json_writer.h"

namespace esm::train {
namespace {

// The rows of `text` that a run restored at `step` may keep.
std::string kept_rows(const std::string& text, int64_t step, bool keep_validation) {
  std::string kept;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const auto row = nlohmann::json::parse(line, nullptr, false);
    if (!row.is_object() || !row.contains("step") || !row["step"].is_number_integer()) continue;
    const int64_t row_step = row["step"];
    if (row_step < step || (row_step == step && (keep_validation || !row.contains("valid")))) kept += line + "\n";
  }
  return kept;
}

const std::string& cut(const std::string& path, int64_t step, bool keep_validation) {
  if (std::filesystem::exists(path)) {
    const std::string text = read_text_file(path);
    const std::string kept = kept_rows(text, step, keep_validation);
    if (kept != text) write_file_atomically(path, kept);
  }
  return path;
}

}  // namespace

MetricsLog::MetricsLog(const std::string& path, int64_t keep_through_step, bool keep_validation)
    : file_(cut(path, keep_through_step, keep_validation)) {}

void MetricsLog::append(const StepMetrics& row) {
  JsonWriter json;
  json.begin_object().field("step", row.step);
  json.field("loss", row.loss).field("grad_norm", row.grad_norm).field("lr", row.lr);
  json.field("tokens", row.tokens).field("tokens_per_s", row.tokens_per_s());
  json.field("padded_tokens", row.padded_tokens).field("scored", row.scored).field("seconds", row.seconds);
  if (row.skipped) json.field("skipped", true);
  file_.append(json.end_object().text());
}

void MetricsLog::append(int64_t step, const std::map<std::string, EvalMetrics>& sets) {
  JsonWriter json;
  json.begin_object().field("step", step).key("valid").begin_object();
  for (const auto& [name, m] : sets) {
    json.key(name).begin_object();
    json.field("loss", m.loss).field("perplexity", m.perplexity).field("accuracy", m.accuracy);
    json.field("scored", m.scored).field("sequences", m.sequences).end_object();
  }
  file_.append(json.end_object().end_object().text());
}

}  // namespace esm::train
