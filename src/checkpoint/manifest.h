// manifest.json: what a checkpoint folder holds, written last. A folder without a sound manifest is not a checkpoint.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace esm::checkpoint {

/// Version of the folder layout and of the manifest. A newer one is refused.
inline constexpr int kFormatVersion = 1;
inline constexpr char kManifestName[] = "manifest.json";

/// What a tensor is. In the optimizer's files the names are `exp_avg/NAME`, `exp_avg_scale/NAME` and so on; scales are
/// those of one-byte moments. kScaleState: amax histories and scales of quantized products (ops/scales.h).
enum class Role { kParameter, kExpAvg, kExpAvgSq, kExpAvgScale, kExpAvgSqScale, kScaleState, kPassThrough };
std::string_view role_name(Role role);
/// "exp_avg/", ..., or "": what stands before a tensor's name in a file.
std::string_view name_prefix(Role role);

struct FileEntry {
  std::string name;  // inside the folder; no path
  int64_t bytes = 0;
  std::string hash;  // XXH3-128
  bool operator==(const FileEntry&) const = default;
};

struct TensorEntry {
  std::string name;
  Role role = Role::kParameter;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::string file;
  bool operator==(const TensorEntry&) const = default;
};

/// Members ending in `_json` hold JSON text that belongs to somebody else and is kept as it is ("" = absent). Their
/// numbers survive if they fit int64, uint64 or double.
struct Manifest {
  int format_version = kFormatVersion;
  int64_t step = 0;         // optimizer steps done
  std::string created;      // UTC, "2026-05-01T12:00:00Z"
  std::string model_kind;   // "esm2"
  std::string model_yaml;   // its configuration: sizes and options
  std::string config_yaml;  // the resolved run configuration
  uint64_t seed = 0;        // all randomness is Philox of (seed, stream, position): no generator state exists
  int64_t world_size = 1;
  int64_t threads = 1;
  std::string data_position_json;               // epoch, pack, ... of the next batch
  std::string schedule_json;                    // learning-rate schedule
  std::string counters_json;                    // tokens seen, skipped steps, best metric, early stop, ...
  std::string origin_json;                      // where imported weights came from (train/model_io.h)
  std::optional<double> metric;                 // validation loss at this step (lower is better)
  std::map<std::string, std::string> versions;  // program, LibTorch, ...
  std::map<std::string, std::string> kernels;   // what the last bits depend on (train/kernel_choice.h); may be empty
  std::vector<FileEntry> files;
  std::vector<TensorEntry> tensors;

  bool operator==(const Manifest&) const = default;
};

/// JSON text that ends with its own hash.
std::string manifest_text(const Manifest& manifest);

/// Checks hash, version, types, file names (plain names only) and that tensors lie in listed files. `where` is named in
/// errors. Throws CheckpointError.
Manifest parse_manifest(std::string_view text, const std::string& where);

/// "step-000000100".
std::string step_folder_name(int64_t step);

/// Step of a proper folder name ("step-" and at least nine digits, no other spelling of the same number).
std::optional<int64_t> parse_step_folder_name(std::string_view name);

/// A file name that cannot lead out of its folder: letters, digits, '.', '_', '-', not starting with '.'.
bool is_plain_file_name(std::string_view name);

}  // namespace esm::checkpoint
