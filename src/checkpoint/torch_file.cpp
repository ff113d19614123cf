#include "checkpoint/torch_file.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <set>

#include "base/check.h"
#include "checkpoint/file_system.h"

namespace esm::checkpoint {
namespace {

constexpr std::string_view kZip("PK\3\4", 4);
// PyTorch before 1.6: a pickle of a magic number comes first.
constexpr std::string_view kOld("\x80\x02\x8a\nl\xfc\x9c\x46\xf9 j\xa8P\x19.", 15);

std::string first_bytes(const std::string& path) {
  std::array<char, kOld.size()> bytes{};
  std::ifstream file(path, std::ios::binary);
  file.read(bytes.data(), std::ssize(bytes));
  return {bytes.data(), static_cast<size_t>(file.gcount())};
}

ZipArchive open_archive(const std::string& path) {
  if (!path_exists(path)) fail<CheckpointError>("{}: no such file", path);
  if (first_bytes(path).starts_with(kOld))
    fail<CheckpointError>(
        "{}: a file of PyTorch before 1.6; write it anew with a newer one: torch.save(torch.load(path), path)", path);
  return ZipArchive(path);
}

// "esm2_t6_8M_UR50D/": all names begin with the folder that holds data.pkl.
std::string folder_of(const ZipArchive& archive) {
  constexpr std::string_view kPickle = "/data.pkl";
  for (const auto& [name, entry] : archive.entries())
    if (name.ends_with(kPickle) && name.find('/') == name.size() - kPickle.size())
      return name.substr(0, name.size() - kPickle.size() + 1);
  fail<CheckpointError>("{}: a zip file, but not one of torch.save: there is no data.pkl in it", archive.path());
}

void check_byte_order(const ZipArchive& archive, const std::string& folder) {
  const std::string name = folder + "byteorder";
  if (!archive.entries().contains(name)) return;  // before PyTorch 2.1
  const std::span<const std::byte> bytes = archive.read(name);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text != "little")
    fail<CheckpointError>("{}: byte order '{}'; only little is read", archive.path(), text.substr(0, 20));
}

}  // namespace

bool is_torch_file(const std::string& path) {
  const std::string bytes = first_bytes(path);
  return bytes.starts_with(kZip) || bytes.starts_with(kOld);
}

TorchFile::TorchFile(const std::string& path)
    : archive_(open_archive(path)),
      folder_(folder_of(archive_)),
      pickle_(archive_.read(folder_ + "data.pkl"), fmt::format("{}: {}data.pkl", path, folder_)) {
  check_byte_order(archive_, folder_);
}

void TorchFile::load(const PickledValue& dict) {
  ESM_CHECK(dict.kind == PickledValue::Kind::kDict, "tensors are taken from a dict");
  std::set<std::string_view> names;
  std::set<std::string> checked;
  for (size_t i = 0; i + 1 < dict.items.size(); i += 2) {
    const PickledValue& name = pickle_.at(dict.items[i]);
    const PickledValue& value = pickle_.at(dict.items[i + 1]);
    if (name.kind != PickledValue::Kind::kText) fail<CheckpointError>("{}: a tensor without a name", path());
    const std::string what = fmt::format("{}: tensor '{}'", path(), name.text.substr(0, 200));
    if (value.kind != PickledValue::Kind::kTensor) fail<CheckpointError>("{}: it is no tensor", what);
    if (!names.insert(name.text).second) fail<CheckpointError>("{}: it stands there twice", what);
    const PickledTensor& tensor = pickle_.tensor(value);
    if (checked.insert(tensor.storage).second) archive_.read(folder_ + "data/" + tensor.storage);
    tensors_.push_back(
        {.name = name.text, .dtype = tensor.dtype, .shape = tensor.shape, .bytes = bytes_of(tensor, what)});
  }
}

std::span<const std::byte> TorchFile::bytes_of(const PickledTensor& tensor, const std::string& what) {
  const std::span<const std::byte> storage = archive_.entries().find(folder_ + "data/" + tensor.storage)->second.bytes;
  const int64_t size = size_of(tensor.dtype), available = std::ssize(storage) / size;
  if (tensor.storage_elements > available)
    fail<CheckpointError>("{}: damaged: its storage has {} elements of {} bytes, {} bytes are there", what,
                          tensor.storage_elements, size, storage.size());
  // The last element that it reaches, and whether it is all elements one after the other.
  int64_t count = 1, last = tensor.offset;
  bool dense = true;
  for (size_t d = tensor.shape.size(); d-- > 0;) {
    const int64_t n = tensor.shape[d], stride = n == 1 ? 0 : tensor.strides[d];
    dense = dense && (n == 1 || stride == count);
    int64_t reach = 0;
    if (__builtin_mul_overflow(count, n, &count) ||
        __builtin_mul_overflow(std::max<int64_t>(n - 1, 0), stride, &reach) ||
        __builtin_add_overflow(last, reach, &last))
      fail<CheckpointError>("{}: damaged: the shape is too large", what);
  }
  if (count == 0) return {};
  // An expanded tensor may claim any size; no weights are one.
  if (last >= tensor.storage_elements || count > tensor.storage_elements)
    fail<CheckpointError>("{}: damaged: {} reaches element {} of a storage of {}", what, shape_text(tensor.shape), last,
                          tensor.storage_elements);
  const auto bytes = static_cast<size_t>(size);
  if (dense) return storage.subspan(static_cast<size_t>(tensor.offset) * bytes, static_cast<size_t>(count) * bytes);

  copied_bytes_ += count * size;
  if (copied_bytes_ > archive_.file_bytes())
    fail<CheckpointError>("{}: damaged: its views take more bytes than the whole file has", what);
  std::vector<std::byte>& copy = copies_.emplace_back(static_cast<size_t>(count) * bytes);
  std::vector<int64_t> index(tensor.shape.size(), 0);
  int64_t from = tensor.offset;
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(copy.data() + static_cast<size_t>(i) * bytes, storage.data() + static_cast<size_t>(from) * bytes,
                bytes);
    for (size_t d = index.size(); d-- > 0;) {
      if (tensor.shape[d] == 1) continue;  // its stride means nothing and may be anything
      from += tensor.strides[d];
      if (++index[d] < tensor.shape[d]) break;
      from -= tensor.strides[d] * tensor.shape[d];
      index[d] = 0;
    }
  }
  return copy;
}

}  // namespace esm::checkpoint
