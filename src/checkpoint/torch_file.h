// Files of torch.save (PyTorch 1.6 and later): a zip file with one pickle, data.pkl, and the bytes of every storage
// beside it. Nothing of the pickle is run (pickle.h).
#pragma once
#include <deque>
#include <string>
#include <vector>

#include "checkpoint/pickle.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/zip_archive.h"

namespace esm::checkpoint {

/// Whether the file begins like one of torch.save, of whatever age.
bool is_torch_file(const std::string& path);

/// One mapped and checked file. Throws CheckpointError: no such file, damaged, of an older PyTorch, or a pickle that
/// wants more than weights do.
class TorchFile {
 public:
  explicit TorchFile(const std::string& path);
  TorchFile(TorchFile&&) = default;
  TorchFile& operator=(TorchFile&&) = default;

  const std::string& path() const { return archive_.path(); }
  const Pickle& pickle() const { return pickle_; }

  /// Takes the tensors of a dict by name; they live as long as this file. Those that are views with gaps are copied,
  /// the others stay where they are. Checks every storage against its checksum. Throws when something else than a
  /// tensor is in the dict, or when a tensor reaches beyond its storage.
  void load(const PickledValue& dict);
  const std::vector<TensorRef>& tensors() const { return tensors_; }

 private:
  std::span<const std::byte> bytes_of(const PickledTensor& tensor, const std::string& what);

  ZipArchive archive_;
  std::string folder_;  // inside the archive, with a slash
  Pickle pickle_;
  std::vector<TensorRef> tensors_;
  std::deque<std::vector<std::byte>> copies_;
  int64_t copied_bytes_ = 0;
};

}  // namespace esm::checkpoint
