// esmtrain convert IN OUT --to FORMAT: weights from one format into another.
#include <cstdio>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/args.h"
#include "app/commands.h"
#include "app/version.h"
#include "base/check.h"
#include "base/signals.h"
#include "base/units.h"
#include "train/model_io.h"

namespace esm::app {
namespace {

template <class... Args>
void print_line(fmt::format_string<Args...> format, Args&&... args) {
  std::fputs((fmt::format(format, std::forward<Args>(args)...) + "\n").c_str(), stdout);
}

// "esm.encoder.layer.3.x" -> "esm.encoder.layer.N.x".
std::string pattern_of(std::string_view name) {
  std::string pattern;
  for (const char c : name) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit)
      pattern += c;
    else if (!pattern.ends_with('N'))
      pattern += 'N';
  }
  return pattern;
}

// Names that differ by the layer are named once, with their number.
void print_names(std::string_view what, const std::vector<std::string>& names) {
  std::map<std::string, std::vector<std::string>> by_pattern;
  for (const std::string& name : names) by_pattern[pattern_of(name)].push_back(name);
  for (const auto& [pattern, members] : by_pattern) {
    if (members.size() == 1)
      print_line("  {}: {}", what, members.front());
    else
      print_line("  {}: {} ({} tensors)", what, pattern, members.size());
  }
}

std::optional<DType> parse_weight_dtype(const std::string& name) {
  if (name == "fp32") return DType::kF32;
  if (name == "fp16") return DType::kF16;
  if (name == "bf16") return DType::kBF16;
  if (name == "fp8") return DType::kF8E4M3;
  return std::nullopt;  // "source"
}

void print_source(const train::ModelSource& source) {
  const models::Esm2Config& config = source.config();
  print_line("read {} ({}, {})", source.path(), train::format_name(source.format()), dtype_name(source.dtype()));
  print_line("  ESM-2: {} layers, hidden {}, {} heads, feed-forward {}; {} parameters{}", config.layers, config.hidden,
             config.heads, config.ffn_size(), with_thousands(source.parameter_count()),
             source.has("contact.weight") ? ", with contact head" : "");
  print_line("  tensors: {} used, {} passed through, 0 missing, 0 unexpected", source.report().used,
             source.report().passed_through.size());
  print_names("passed through", source.report().passed_through);
  for (const std::string& note : source.report().notes) print_line("  note: {}", note);
}

}  // namespace

int cmd_convert(int argc, char** argv) {
  std::string in, to, dtype = "source";
  train::ExportOptions options;
  Args args(
      "convert",
      "Converts the weights of a model. IN is a checkpoint or run folder of ours, a Hugging Face or NVIDIA folder "
      "with config.json, a single .safetensors file with config.json beside it, or a .pt file of fair-esm (its pickle "
      "is read, never run; NAME-contact-regression.pt beside it brings the contact head); its format is detected. OUT "
      "is a new folder, complete or not there at all. An unknown, missing or misshapen tensor is an error.");
  args.positional(in, "IN", "Model to read.")
      .positional(options.out, "OUT", "Folder to make.")
      .choice(to, "--to", {"hf", "native", "nvidia", "nvidia-old"},
              "Format: hf (EsmForMaskedLM), native (our checkpoint, weights only), nvidia and nvidia-old "
              "(NVEsmForMaskedLM with the newer and the older names).",
              Args::kRequired)
      .choice(
          dtype, "--dtype", {"source", "fp32", "fp16", "bf16", "fp8"},
          "Element type of the weights in hf and nvidia folders; source: as they were imported, fp32 if they were "
          "trained here. fp8: the matrices of the encoder layers become E4M3 codes with a power of two for each "
          "matrix (NAME_scale), all else fp32; importing them back gives the same codes again. An hf folder says so "
          "in the terms of compressed-tensors; nvidia folders of fp8 are for esmtrain alone. native is always "
          "fp32.")
      .option(options.max_file_bytes, "--max-file-bytes", "N", "Start another file beyond so many bytes.")
      .flag(options.force, "--force", "Replace OUT if it is a folder of a model.")
      .example("esmtrain convert runs/esm2 esm2-hf --to hf", "export the best (or newest) checkpoint of a run")
      .example("esmtrain convert runs/esm2 esm2-fp8 --to hf --dtype fp8", "the same with weights of 8 bits")
      .example("esmtrain convert esm2_t6_8M_UR50D start --to native", "import")
      .example("esmtrain convert esm2_t6_8M_UR50D.pt esm2-hf --to hf", "from fair-esm to Hugging Face");
  if (!args.parse(argc, argv)) return 0;
  if (options.max_file_bytes < 1) fail<ConfigError>("--max-file-bytes: at least 1 is wanted");
  options.format = train::parse_format(to).value();
  options.dtype = parse_weight_dtype(dtype);
  if (options.format == train::Format::kNative && options.dtype.value_or(DType::kF32) != DType::kF32)
    fail<ConfigError>("--dtype {}: native checkpoints hold fp32 (give --to hf or nvidia for fewer bits)", dtype);
  for (const auto& [name, version] : program_versions()) options.versions[name] = version;

  const train::ModelSource source = train::open_model(in);
  print_source(source);
  const StopSignals signals;
  options.should_stop = [] { return StopSignals::received() != 0; };
  const train::ExportResult result = train::export_model(source, options);
  print_line("wrote {} ({}, {}): {} tensors, {} in {} files", options.out, to, dtype_name(result.dtype), result.tensors,
             human_bytes(result.bytes), result.files.size());
  print_names("left out", result.left_out);
  for (const std::string& note : result.notes) print_line("  note: {}", note);
  return 0;
}

}  // namespace esm::app
