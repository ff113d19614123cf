// A tiny run through the built binary, and what it wrote.
#pragma once
#include <fmt/core.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/hash.h"
#include "tests/cli/process.h"

namespace esm::test {

/// Folder of the repository's root: configs name test data relative to it.
inline ProcessOptions in_repository(double timeout_s = 120) {
  return {.folder = ESM_SOURCE_DIR, .timeout_s = timeout_s};
}

/// Writes a config of a very small model (1 layer x 32) into `folder`; `more` is YAML on top.
inline std::string tiny_config(const std::string& folder, const std::string& more = "") {
  const std::string path = folder + "/tiny.yaml";
  write_file_atomically(path, fmt::format(R"(run: {{dir: {0}/run}}
seed: 3
precision: fp32
model: {{layers: 1, hidden: 32, heads: 2}}
data:
  train: tests/data/protein/tiny_train.fasta
  valid: tests/data/protein/tiny_valid.fasta
  cache_dir: {0}/cache
  max_tokens: 128
  tokens_per_batch: 512
optimizer: {{lr: 1e-3}}
schedule: {{warmup_steps: 4}}
{1})",
                                          folder, more));
  return path;
}

inline std::vector<std::string> train_command(const std::string& config, std::vector<std::string> more = {}) {
  std::vector<std::string> command{ESM_EXE, "train", config};
  command.insert(command.end(), more.begin(), more.end());
  return command;
}

/// Rows of metrics.jsonl as text, without the wall-clock figures, keyed by "step 7" or "valid 7". A key that comes
/// twice is an error.
inline std::map<std::string, std::string> metric_rows(const std::string& run) {
  std::map<std::string, std::string> rows;
  std::istringstream lines(read_text_file(run + "/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    auto row = nlohmann::json::parse(line);
    row.erase("seconds");
    row.erase("tokens_per_s");
    const std::string key = fmt::format("{} {}", row.contains("valid") ? "valid" : "step", row["step"].get<int64_t>());
    if (!rows.emplace(key, row.dump()).second) throw std::runtime_error("twice in metrics.jsonl: " + key);
  }
  return rows;
}

/// Hashes of the tensor files of a checkpoint, by name.
inline std::map<std::string, std::string> tensor_hashes(const std::string& run, int64_t step) {
  std::map<std::string, std::string> hashes;
  for (const auto& entry : std::filesystem::directory_iterator(fmt::format("{}/checkpoints/step-{:09d}", run, step)))
    if (entry.path().extension() == ".safetensors")
      hashes[entry.path().filename().string()] = hash_file(entry.path().string());
  return hashes;
}

}  // namespace esm::test
