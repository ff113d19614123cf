// A checkpoint folder opened for reading.
#pragma once
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"

namespace esm::checkpoint {

/// kSizes: manifest hash and file sizes (cheap, for listings). kContent: the hash of every file too, before any tensor
/// can be used.
enum class Verify { kSizes, kContent };

struct ExpectedTensor {
  std::string name;
  std::vector<int64_t> shape;
  bool optional = false;  // may be absent; an empty shape then means any
  DType dtype = DType::kF32;
};

class OpenCheckpoint {
 public:
  /// Throws CheckpointError that names the damaged or missing file, with expected and real size or hash. Never falls
  /// back to another checkpoint.
  explicit OpenCheckpoint(const std::string& path, Verify verify = Verify::kContent);

  const std::string& path() const { return path_; }
  const Manifest& manifest() const { return manifest_; }
  bool has_optimizer() const;
  const std::vector<SafetensorsFile>& files() const { return files_; }

  /// nullptr when there is no such tensor. `name` is the plain parameter name for every role.
  const TensorRef* find(Role role, std::string_view name) const;
  /// Throws CheckpointError when there is no such tensor.
  const TensorRef& tensor(Role role, std::string_view name) const;
  /// Tensors of a role in the manifest's order. TensorRef::name has the prefix `exp_avg/` for moments.
  std::vector<const TensorRef*> tensors(Role role) const;

  /// Checks that the role holds `expected` and nothing else; throws one CheckpointError with the
  /// missing and the unexpected names and the first differing shape or type. Call it for kParameter, and to resume for
  /// kExpAvg and kExpAvgSq too: weights without moments are refused by it, naming what is missing.
  void require(Role role, std::span<const ExpectedTensor> expected) const;

 private:
  std::string path_;
  Manifest manifest_;
  std::vector<SafetensorsFile> files_;
  std::map<std::pair<Role, std::string>, const TensorRef*, std::less<>> index_;
};

/// Manifest of a folder, its own hash checked, without a look at the files that it lists. Throws CheckpointError.
Manifest load_manifest(const std::string& folder);
/// Throws CheckpointError when a file that the folder's manifest lists is missing or other than it says.
void check_file(const std::string& folder, const FileEntry& file, Verify verify);
/// Both, for all files; tensors are not looked at.
Manifest read_manifest(const std::string& folder, Verify verify = Verify::kSizes);

}  // namespace esm::checkpoint
