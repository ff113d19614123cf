// Reading and writing safetensors files (https://github.com/huggingface/safetensors): 8 bytes header length (little
// endian), a JSON header, raw data. Files come from strangers: everything is checked before it is used, and nothing is
// allocated by a size that a file merely claims.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/files.h"
#include "base/hash.h"
#include "checkpoint/file_system.h"

namespace esm::checkpoint {

/// "[33, 64]".
std::string shape_text(std::span<const int64_t> shape);

/// Elements of a shape (1 for a scalar). Shapes of files are checked against overflow when they are read.
int64_t element_count(std::span<const int64_t> shape);

/// A tensor inside a mapped file; valid as long as the SafetensorsFile (or set) lives. `bytes` is row-major and little
/// endian, and may be unaligned for its element type: copy with memcpy.
struct TensorRef {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
};

/// One mapped and checked file. Opening reads the header only.
class SafetensorsFile {
 public:
  /// Throws CheckpointError naming the file, what was expected and what was found.
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return path_; }
  /// In the order of the data.
  const std::vector<TensorRef>& tensors() const { return tensors_; }
  /// nullptr when there is no such tensor.
  const TensorRef* find(std::string_view name) const;
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// The whole file, for hashing.
  std::span<const std::byte> file_bytes() const { return file_.bytes(); }

 private:
  void parse_header(std::string_view header, std::span<const std::byte> data);

  std::string path_;
  MappedFile file_;
  std::vector<TensorRef> tensors_;
  std::map<std::string, size_t, std::less<>> index_;
  std::map<std::string, std::string> metadata_;
};

/// The tensors of a model that may be spread over several files: a single .safetensors file, or a folder with
/// `model.safetensors.index.json`, else with `model.safetensors`, else with any .safetensors files.
class SafetensorsSet {
 public:
  /// Throws CheckpointError: no file, a name in two files, an index that names an absent file or tensor.
  explicit SafetensorsSet(const std::string& path);

  const std::vector<SafetensorsFile>& files() const { return files_; }
  /// Paths of .safetensors files in the folder that the rule above leaves out.
  const std::vector<std::string>& side_files() const { return side_files_; }
  /// All tensors, file by file.
  std::vector<const TensorRef*> tensors() const;
  const TensorRef* find(std::string_view name) const;

 private:
  std::vector<SafetensorsFile> files_;
  std::vector<std::string> side_files_;
};

/// A tensor to write. Either `bytes` is set, or `make`, which is called when the tensor's turn comes and whose result
/// is let go right after: a conversion holds one tensor at a time.
struct TensorOut {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
  std::function<std::vector<std::byte>()> make;

  int64_t byte_count() const { return element_count(shape) * size_of(dtype); }
};

struct WrittenFile {
  int64_t bytes = 0;
  std::string hash;  // XXH3-128 of the content
};

/// Writes a new file (an existing one is an error), synced to the disk. The data stand in the order of the reference
/// implementation (wide element types first, then by name), so every tensor is aligned and the file of equal tensors is
/// equal. Throws CheckpointError (DiskFullError when there is no room); a partial file may be left behind, since the
/// caller removes the whole folder.
WrittenFile write_safetensors(FileSystem& files, const std::string& path, std::span<const TensorOut> tensors,
                              const std::map<std::string, std::string>& metadata);

}  // namespace esm::checkpoint
