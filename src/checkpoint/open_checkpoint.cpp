#include "checkpoint/open_checkpoint.h"

#include <sys/stat.h>

#include <filesystem>
#include <set>

#include "base/check.h"
#include "base/files.h"
#include "base/hash.h"
#include "checkpoint/file_system.h"

namespace esm::checkpoint {
namespace fs = std::filesystem;
namespace {

// Larger than any manifest we write (15B on 1,000 ranks: some MiB), small enough to read.
constexpr int64_t kMaxManifestBytes = int64_t{256} << 20;

std::string join(const std::string& folder, const std::string& name) { return (fs::path(folder) / name).string(); }

// Size of a regular file; links are refused, so that a checkpoint from a stranger cannot point elsewhere.
int64_t regular_file_bytes(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) {
    if (errno == ENOENT) fail<CheckpointError>("{} is missing", path);
    fail<CheckpointError>("cannot read {}: {}", path, errno_text());
  }
  if (!S_ISREG(info.st_mode)) fail<CheckpointError>("{} is not a regular file", path);
  return static_cast<int64_t>(info.st_size);
}

std::string list_of(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(names.size(), 5); ++i) text += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > 5) text += fmt::format(", ... ({} in all)", names.size());
  return text;
}

}  // namespace

Manifest load_manifest(const std::string& folder) {
  const std::string path = join(folder, kManifestName);
  if (!is_folder(folder)) fail<CheckpointError>("{} is not a folder", folder);
  if (!path_exists(path)) fail<CheckpointError>("{} is not a complete checkpoint: it has no {}", folder, kManifestName);
  if (const int64_t bytes = regular_file_bytes(path); bytes > kMaxManifestBytes)
    fail<CheckpointError>("{}: damaged: {} bytes are too many for a manifest", path, bytes);
  Manifest manifest;
  try {
    manifest = parse_manifest(read_text_file(path), path);
  } catch (const DataError& e) {
    fail<CheckpointError>("{}", e.what());
  }
  fs::path plain = fs::path(folder).lexically_normal();
  if (!plain.has_filename()) plain = plain.parent_path();  // a slash at the end
  const std::optional<int64_t> named = parse_step_folder_name(plain.filename().string());
  if (named.has_value() && *named != manifest.step)
    fail<CheckpointError>("{}: the manifest of another checkpoint: it says step {}", path, manifest.step);
  return manifest;
}

void check_file(const std::string& folder, const FileEntry& file, Verify verify) {
  const std::string path = join(folder, file.name);
  const int64_t bytes = regular_file_bytes(path);
  if (bytes != file.bytes)
    fail<CheckpointError>("{}: damaged: {} bytes expected, the file has {}", path, file.bytes, bytes);
  if (verify == Verify::kSizes) return;
  std::string hash;
  try {
    hash = hash_file(path);
  } catch (const DataError& e) {
    fail<CheckpointError>("{}", e.what());
  }
  if (hash != file.hash)
    fail<CheckpointError>(
        "{}: damaged, or the file of another checkpoint: its content has hash {}, the manifest says {}", path, hash,
        file.hash);
}

Manifest read_manifest(const std::string& folder, Verify verify) {
  Manifest manifest = load_manifest(folder);
  for (const FileEntry& file : manifest.files) check_file(folder, file, verify);
  return manifest;
}

OpenCheckpoint::OpenCheckpoint(const std::string& path, Verify verify)
    : path_(path), manifest_(read_manifest(path, verify)) {
  std::map<std::string, size_t> by_name;
  size_t in_files = 0;
  for (const FileEntry& file : manifest_.files) {
    by_name[file.name] = files_.size();
    files_.emplace_back(join(path, file.name));
    in_files += files_.back().tensors().size();
  }
  for (const TensorEntry& entry : manifest_.tensors) {
    const SafetensorsFile& file = files_[by_name.at(entry.file)];
    const TensorRef* tensor = file.find(std::string(name_prefix(entry.role)) + entry.name);
    if (tensor == nullptr || tensor->dtype != entry.dtype || tensor->shape != entry.shape)
      fail<CheckpointError>("{}: it does not hold tensor '{}' {} {} as the manifest says", file.path(), entry.name,
                            dtype_name(entry.dtype), shape_text(entry.shape));
    index_[{entry.role, entry.name}] = tensor;
  }
  if (in_files != manifest_.tensors.size())
    fail<CheckpointError>("{}: the files hold {} tensors, the manifest lists {}", path, in_files,
                          manifest_.tensors.size());
}

bool OpenCheckpoint::has_optimizer() const {
  for (const TensorEntry& entry : manifest_.tensors)
    if (entry.role == Role::kExpAvg) return true;
  return false;
}

const TensorRef* OpenCheckpoint::find(Role role, std::string_view name) const {
  const auto it = index_.find({role, std::string(name)});
  return it == index_.end() ? nullptr : it->second;
}

const TensorRef& OpenCheckpoint::tensor(Role role, std::string_view name) const {
  const TensorRef* tensor = find(role, name);
  if (tensor == nullptr) fail<CheckpointError>("{}: there is no {} '{}'", path_, role_name(role), name);
  return *tensor;
}

std::vector<const TensorRef*> OpenCheckpoint::tensors(Role role) const {
  std::vector<const TensorRef*> found;
  for (const TensorEntry& entry : manifest_.tensors)
    if (entry.role == role) found.push_back(find(role, entry.name));
  return found;
}

void OpenCheckpoint::require(Role role, std::span<const ExpectedTensor> expected) const {
  std::vector<std::string> missing, unexpected;
  std::set<std::string, std::less<>> known;
  std::string wrong;
  for (const ExpectedTensor& want : expected) {
    known.insert(want.name);
    const TensorRef* tensor = find(role, want.name);
    if (tensor == nullptr) {
      if (!want.optional) missing.push_back(std::string(name_prefix(role)) + want.name);
      continue;
    }
    const bool fits = tensor->shape == want.shape || (want.optional && want.shape.empty());
    if (wrong.empty() && (!fits || tensor->dtype != want.dtype))
      wrong = fmt::format("{} is {} {} there, the model wants {} {}", tensor->name, dtype_name(tensor->dtype),
                          shape_text(tensor->shape), dtype_name(want.dtype), shape_text(want.shape));
  }
  for (const TensorEntry& entry : manifest_.tensors)
    if (entry.role == role && !known.contains(entry.name))
      unexpected.push_back(std::string(name_prefix(role)) + entry.name);
  if (missing.empty() && unexpected.empty() && wrong.empty()) return;
  std::string message = fmt::format("{} does not fit this model", path_);
  if (role != Role::kParameter && role != Role::kPassThrough && !has_optimizer())
    message = fmt::format(
        "{} holds weights without optimizer state, so training cannot be resumed from it (it can be "
        "started from these weights: init_from)",
        path_);
  if (!wrong.empty()) message += ": " + wrong;
  if (!missing.empty()) message += fmt::format("; {} missing: {}", missing.size(), list_of(missing));
  if (!unexpected.empty()) message += fmt::format("; {} unexpected: {}", unexpected.size(), list_of(unexpected));
  fail<CheckpointError>("{}", message);
}

}  // namespace esm::checkpoint
