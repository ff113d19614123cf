// What an inspection found, for people and for programs.
#include <fmt/ranges.h>

#include <algorithm>

#include "base/json_writer.h"
#include "base/units.h"
#include "checkpoint/safetensors.h"
#include "train/inspect.h"

namespace esm::train {
namespace {

constexpr auto kActivationNames = models::enum_names(models::Activation{});

std::string format_words(Format format) {
  switch (format) {
    case Format::kNative: return "checkpoint of esmtrain";
    case Format::kHf: return "Hugging Face (EsmForMaskedLM)";
    case Format::kNvidia: return "NVIDIA TransformerEngine (NVEsmForMaskedLM), newer names";
    case Format::kNvidiaOld: return "NVIDIA TransformerEngine (NVEsmForMaskedLM), older names";
    case Format::kFairEsm: return "fair-esm (a .pt file of PyTorch)";
  }
  return "";
}

std::string dtypes_text(const std::map<DType, int64_t>& tensors) {
  if (tensors.size() == 1) return std::string(dtype_name(tensors.begin()->first));
  std::vector<std::string> parts;
  for (const auto& [dtype, count] : tensors) parts.push_back(fmt::format("{} ({} tensors)", dtype_name(dtype), count));
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string pairs_text(const std::map<std::string, std::string>& pairs) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : pairs) parts.push_back(name + " " + value);
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string_view check_words(InspectedFile::Check check) {
  switch (check) {
    case InspectedFile::Check::kNone: return "no hash to compare with";
    case InspectedFile::Check::kSize: return "size as expected";
    case InspectedFile::Check::kContent: return "hash as expected";
    case InspectedFile::Check::kDamaged: return "DAMAGED";
  }
  return "";
}

std::string_view check_name(InspectedFile::Check check) {
  switch (check) {
    case InspectedFile::Check::kNone: return "none";
    case InspectedFile::Check::kSize: return "size";
    case InspectedFile::Check::kContent: return "content";
    case InspectedFile::Check::kDamaged: return "damaged";
  }
  return "";
}

class Text {
 public:
  void line(std::string_view text) { out_ += std::string(text) + "\n"; }
  /// Nothing for an empty value.
  void row(std::string_view name, const std::string& value) {
    if (!value.empty()) out_ += fmt::format("  {:<11} {}\n", name, value);
  }
  /// Columns as wide as their content, each aligned as its '<' or '>' says.
  void table(const std::string& alignment, const std::vector<std::vector<std::string>>& rows) {
    std::vector<size_t> widths(alignment.size());
    for (const auto& row : rows)
      for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    for (const auto& row : rows) {
      std::string text = " ";
      for (size_t i = 0; i < row.size(); ++i)
        text +=
            alignment[i] == '>' ? fmt::format(" {:>{}}", row[i], widths[i]) : fmt::format(" {:<{}}", row[i], widths[i]);
      text.erase(text.find_last_not_of(' ') + 1);
      line(text);
    }
  }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

std::string model_text(const Inspection& found) {
  if (!found.model.has_value()) return "";
  const models::Esm2Config& m = *found.model;
  return fmt::format("ESM-2: {} layers, hidden {}, {} heads, feed-forward {}, {}; {} parameters{}", m.layers, m.hidden,
                     m.heads, m.ffn_size(), kActivationNames[static_cast<size_t>(m.activation)],
                     with_thousands(found.parameters), found.contact_head ? ", with contact head" : "");
}

std::string step_text(const TrainState& state) {
  std::string text =
      fmt::format("{} ({} updates), {} tokens seen", state.step, state.updates, with_thousands(state.tokens));
  if (state.step_seconds > 0) text += ", " + human_duration(state.step_seconds) + " of training";
  if (state.skipped > 0) text += fmt::format(", {} steps skipped", state.skipped);
  return text;
}

std::string loss_text(const TrainState& state) {
  std::vector<std::string> parts;
  if (!state.recent_losses.empty())
    parts.push_back(
        fmt::format("{:.4f} in training (mean of {} steps)", state.recent_loss_mean(), state.recent_losses.size()));
  if (state.valid_loss.has_value())
    parts.push_back(fmt::format("{:.4f} in validation (step {})", *state.valid_loss, state.valid_step));
  if (state.best_loss.has_value())
    parts.push_back(fmt::format("best {:.4f} (step {})", *state.best_loss, state.best_step));
  return fmt::format("{}", fmt::join(parts, ", "));
}

void own_rows(const CheckpointFacts& own, Text& text) {
  text.row("optimizer", own.moments.empty() ? "none" : fmt::format("moments {}", dtypes_text(own.moments)));
  text.row("imported", own.imported_from.empty() ? "" : "the weights came from " + own.imported_from);
  text.row("made", own.manifest.created);
  if (own.state.has_value()) {
    text.row("step", step_text(*own.state));
    text.row("loss", loss_text(*own.state));
    text.row("seed", fmt::format("{}, {} threads", own.manifest.seed, own.manifest.threads));
  } else if (own.manifest.step > 0) {
    text.row("step", std::to_string(own.manifest.step));
  }
  text.row("computed on", pairs_text(own.manifest.kernels));
}

void resume_rows(const ResumeAdvice& resume, Text& text) {
  if (!resume.possible) return text.row("resume", "not possible: " + resume.note);
  text.row("resume", resume.command);
  text.row("", resume.note);
}

void file_lines(const Inspection& found, Text& text) {
  text.line("files:");
  std::vector<std::vector<std::string>> rows;
  for (const InspectedFile& file : found.files)
    rows.push_back({file.name, human_bytes(file.bytes), std::string(check_words(file.check))});
  text.table("<><", rows);
}

void sibling_lines(const std::vector<RunCheckpoint>& siblings, Text& text) {
  if (siblings.empty()) return;
  text.line("checkpoints of this run:");
  std::vector<std::vector<std::string>> rows;
  for (const RunCheckpoint& one : siblings) {
    std::vector<std::string> marks;
    if (one.described) marks.emplace_back("newest, described here");
    if (one.best) marks.emplace_back("best");
    if (one.pinned) marks.emplace_back("pinned");
    rows.push_back({fmt::format("step {}", one.step),
                    one.metric.has_value() ? fmt::format("validation loss {:.4f}", *one.metric) : "",
                    fmt::format("{}", fmt::join(marks, ", "))});
  }
  text.table("<<<", rows);
}

void tensor_lines(const std::vector<TensorSummary>& tensors, Text& text) {
  text.line("tensors:");
  std::vector<std::vector<std::string>> rows{{"name", "type", "shape", "norm", "mean", "abs max", "not finite"}};
  for (const TensorSummary& tensor : tensors) {
    std::vector<std::string> row{tensor.name, std::string(dtype_name(tensor.dtype)),
                                 checkpoint::shape_text(tensor.shape)};
    if (const auto& v = tensor.values; v.has_value())
      row.insert(row.end(), {fmt::format("{:.6g}", v->norm), fmt::format("{:.4g}", v->mean),
                             fmt::format("{:.6g}", v->abs_max), fmt::format("{}", v->not_finite)});
    rows.push_back(std::move(row));
  }
  text.table("<<<>>>>", rows);
}

std::string shape_or_absent(const std::optional<std::vector<int64_t>>& shape) {
  return shape.has_value() ? checkpoint::shape_text(*shape) : "absent";
}

void comparison_lines(const std::string& other, const Comparison& comparison, Text& text) {
  text.line(fmt::format("compared with {}:", other));
  if (comparison.settings.empty())
    text.line(comparison.whole_config ? "  settings: equal" : "  settings of the model: equal");
  for (const SettingDifference& setting : comparison.settings)
    text.line(fmt::format("  {}: {} here, {} there", setting.key, setting.a.value_or("absent"),
                          setting.b.value_or("absent")));
  if (!comparison.whole_config) text.line("  (one of the two has no run's config: only the model's settings count)");
  text.line(fmt::format("  tensors: {} equal, {} differ", comparison.equal_tensors, comparison.tensors.size()));
  std::vector<std::vector<std::string>> rows{
      {"name", "shape", "max abs diff", "norm of diff", "norm here", "norm there", "elements", "not finite"}};
  for (const TensorDifference& tensor : comparison.tensors) {
    if (!tensor.values.has_value()) {
      text.line(fmt::format("  {}: {} here, {} there", tensor.name, shape_or_absent(tensor.shape_a),
                            shape_or_absent(tensor.shape_b)));
      continue;
    }
    const ValueDifference& v = *tensor.values;
    rows.push_back({tensor.name, shape_or_absent(tensor.shape_a), fmt::format("{:.4g}", v.max_abs),
                    fmt::format("{:.4g}", v.norm), fmt::format("{:.6g}", v.norm_a), fmt::format("{:.6g}", v.norm_b),
                    std::to_string(v.differing), std::to_string(v.not_finite)});
  }
  if (rows.size() > 1) text.table("<<>>>>>>", rows);
}

// --- JSON --------------------------------------------------------------------------------------------------------

void put_map(JsonWriter& json, std::string_view name, const std::map<std::string, std::string>& map) {
  json.key(name).begin_object();
  for (const auto& [key, value] : map) json.field(key, value);
  json.end_object();
}

void put_dtypes(JsonWriter& json, std::string_view name, const std::map<DType, int64_t>& map) {
  json.key(name).begin_object();
  for (const auto& [dtype, count] : map) json.field(dtype_name(dtype), count);
  json.end_object();
}

template <class T>
void put_optional(JsonWriter& json, std::string_view name, const std::optional<T>& value) {
  if (value.has_value())
    json.field(name, *value);
  else
    json.key(name).raw("null");
}

void put_model(JsonWriter& json, const models::Esm2Config& m) {
  json.key("model").begin_object().field("layers", m.layers).field("hidden", m.hidden).field("heads", m.heads);
  json.field("ffn", m.ffn_size()).field("activation", kActivationNames[static_cast<size_t>(m.activation)]);
  json.end_object();
}

void put_own(JsonWriter& json, const CheckpointFacts& own) {
  json.field("made", own.manifest.created).field("step", own.manifest.step);
  put_dtypes(json, "moments", own.moments);
  if (own.state.has_value()) {
    const TrainState& state = *own.state;
    json.field("updates", state.updates).field("tokens", state.tokens).field("skipped", state.skipped);
    json.field("train_seconds", state.step_seconds).field("train_loss", state.recent_loss_mean());
    put_optional(json, "valid_loss", state.valid_loss);
    put_optional(json, "best_loss", state.best_loss);
    json.field("best_step", state.best_step);
  }
  json.field("seed", own.manifest.seed).field("threads", own.manifest.threads);
  json.field("imported_from", own.imported_from);
  put_map(json, "computed_on", own.manifest.kernels);
  json.key("resume").begin_object().field("possible", own.resume.possible);
  json.field("command", own.resume.command).field("note", own.resume.note).end_object();
  json.key("checkpoints").begin_array();
  for (const RunCheckpoint& one : own.siblings) {
    json.begin_object().field("step", one.step);
    put_optional(json, "valid_loss", one.metric);
    json.field("best", one.best).field("pinned", one.pinned).end_object();
  }
  json.end_array();
}

void put_tensors(JsonWriter& json, const std::vector<TensorSummary>& tensors) {
  json.key("tensors").begin_array();
  for (const TensorSummary& tensor : tensors) {
    json.begin_object().field("name", tensor.name).field("dtype", dtype_name(tensor.dtype));
    json.field("shape", tensor.shape);
    if (const auto& v = tensor.values; v.has_value()) {
      json.field("norm", v->norm).field("mean", v->mean).field("abs_max", v->abs_max);
      json.field("not_finite", v->not_finite);
    }
    json.end_object();
  }
  json.end_array();
}

void put_comparison(JsonWriter& json, const std::string& other, const Comparison& comparison) {
  json.key("diff").begin_object().field("other", other).field("whole_config", comparison.whole_config);
  json.key("settings").begin_array();
  for (const SettingDifference& setting : comparison.settings) {
    json.begin_object().field("key", setting.key);
    put_optional(json, "here", setting.a);
    put_optional(json, "there", setting.b);
    json.end_object();
  }
  json.end_array().field("equal_tensors", comparison.equal_tensors).key("tensors").begin_array();
  for (const TensorDifference& tensor : comparison.tensors) {
    json.begin_object().field("name", tensor.name);
    put_optional(json, "shape_here", tensor.shape_a);
    put_optional(json, "shape_there", tensor.shape_b);
    if (const auto& v = tensor.values; v.has_value()) {
      json.field("max_abs", v->max_abs).field("norm", v->norm).field("norm_here", v->norm_a);
      json.field("norm_there", v->norm_b).field("differing", v->differing).field("not_finite", v->not_finite);
    }
    json.end_object();
  }
  json.end_array().end_object();
}

}  // namespace

std::string inspect_text(const InspectReport& report) {
  const Inspection& found = report.inspection;
  Text text;
  text.line(found.path);
  text.row("what", format_words(found.format));
  text.row("model", model_text(found));
  text.row("weights", dtypes_text(found.weights) +
                          (found.passed_through.empty()
                               ? ""
                               : fmt::format("; {} tensors passed through", found.passed_through.size())));
  if (found.own.has_value()) own_rows(*found.own, text);
  text.row("written by", pairs_text(found.versions));
  if (found.own.has_value()) resume_rows(found.own->resume, text);
  for (const std::string& note : found.notes) text.row("note", note);
  file_lines(found, text);
  if (found.own.has_value()) sibling_lines(found.own->siblings, text);
  if (report.with_tensors) tensor_lines(report.tensors, text);
  if (report.other.has_value()) comparison_lines(report.other->first, report.other->second, text);
  return text.take();
}

std::string inspect_json(const InspectReport& report) {
  const Inspection& found = report.inspection;
  JsonWriter json(1);
  json.begin_object().field("path", found.path).field("format", format_name(found.format));
  if (found.model.has_value()) put_model(json, *found.model);
  json.field("parameters", found.parameters).field("contact_head", found.contact_head);
  put_dtypes(json, "weights", found.weights);
  json.field("passed_through", found.passed_through);
  put_map(json, "versions", found.versions);
  if (found.own.has_value()) put_own(json, *found.own);
  json.key("files").begin_array();
  for (const InspectedFile& file : found.files) {
    json.begin_object().field("name", file.name).field("bytes", file.bytes).field("checked", check_name(file.check));
    if (!file.problem.empty()) json.field("problem", file.problem);
    json.end_object();
  }
  json.end_array().field("notes", found.notes).field("problems", found.problems);
  if (report.with_tensors) put_tensors(json, report.tensors);
  if (report.other.has_value()) put_comparison(json, report.other->first, report.other->second);
  return json.end_object().text() + "\n";
}

}  // namespace esm::train
