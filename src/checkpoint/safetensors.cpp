#include "checkpoint/safetensors.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "base/check.h"
#include "base/json_limits.h"
#include "base/json_writer.h"
#include "base/narrow.h"
#include "base/units.h"

namespace esm::checkpoint {
namespace fs = std::filesystem;
using nlohmann::json;
namespace {

// The reference implementation's limit too.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;

uint64_t little_endian_u64(std::span<const std::byte> bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < 8; ++i) value |= static_cast<uint64_t>(bytes[i]) << (8 * i);
  return value;
}

// Parses a JSON object, refusing a key that stands twice at depth 1.
json parse_object(std::string_view text, const std::string& where) {
  if (const std::string excess = json_excess(text); !excess.empty())
    fail<CheckpointError>("{}: damaged: {}", where, excess);
  std::set<std::string> seen;
  std::string duplicate;
  const auto watch = [&](int depth, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::key && depth == 1 && duplicate.empty() &&
        !seen.insert(value.get_ref<const std::string&>()).second)
      duplicate = value.get<std::string>();
    return true;
  };
  json parsed;
  try {
    parsed = json::parse(text.begin(), text.end(), watch);
  } catch (const json::exception& e) {
    fail<CheckpointError>("{}: damaged: not JSON ({})", where, e.what());
  }
  if (!duplicate.empty()) fail<CheckpointError>("{}: damaged: '{}' stands there twice", where, duplicate);
  if (!parsed.is_object()) fail<CheckpointError>("{}: damaged: not a JSON object", where);
  return parsed;
}

// A non-negative integer that fits int64.
int64_t get_count(const json& value, const std::string& what) {
  const std::optional<int64_t> count = json_integer(value);
  if (!count.has_value() || *count < 0)
    fail<CheckpointError>("{}: expected a non-negative integer, found {}", what, value.dump().substr(0, 40));
  return *count;
}

// Bytes of a tensor; refuses an overflow.
int64_t checked_bytes(std::span<const int64_t> shape, DType dtype, const std::string& what) {
  int64_t bytes = size_of(dtype);
  for (const int64_t n : shape)
    if (__builtin_mul_overflow(bytes, n, &bytes)) fail<CheckpointError>("{}: the shape is too large", what);
  return bytes;
}

MappedFile open_mapped(const std::string& path) {
  try {
    return MappedFile(path);
  } catch (const DataError& e) {
    fail<CheckpointError>("{}", e.what());
  }
}

}  // namespace

std::string shape_text(std::span<const int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += fmt::format("{}{}", i == 0 ? "" : ", ", shape[i]);
  return text + "]";
}

int64_t element_count(std::span<const int64_t> shape) {
  int64_t count = 1;
  for (const int64_t n : shape) count *= n;
  return count;
}

SafetensorsFile::SafetensorsFile(const std::string& path) : path_(path), file_(open_mapped(path)) {
  const std::span<const std::byte> bytes = file_.bytes();
  if (bytes.size() < 8)
    fail<CheckpointError>("{}: damaged: a safetensors file has at least 8 bytes, this one has {}", path, bytes.size());
  const uint64_t header_bytes = little_endian_u64(bytes);
  if (header_bytes > kMaxHeaderBytes || header_bytes > bytes.size() - 8)
    fail<CheckpointError>(
        "{}: damaged or not a safetensors file: its first 8 bytes announce a header of {} bytes, the file has {}", path,
        header_bytes, bytes.size());
  const auto* header = reinterpret_cast<const char*>(bytes.data() + 8);
  parse_header({header, header_bytes}, bytes.subspan(8 + header_bytes));
}

void SafetensorsFile::parse_header(std::string_view header, std::span<const std::byte> data) {
  const json root = parse_object(header, path_);
  struct Extent {
    int64_t begin, end;
    TensorRef tensor;
  };
  std::vector<Extent> extents;
  int64_t data_end = 0;
  for (const auto& [name, entry] : root.items()) {
    if (name == "__metadata__") {
      if (!entry.is_object()) fail<CheckpointError>("{}: damaged: __metadata__ is not an object", path_);
      for (const auto& [key, value] : entry.items()) {
        if (!value.is_string()) fail<CheckpointError>("{}: damaged: __metadata__ '{}' is not text", path_, key);
        metadata_[key] = value.get<std::string>();
      }
      continue;
    }
    const std::string what = fmt::format("{}: tensor '{}'", path_, name);
    const bool complete = entry.is_object() && entry.contains("dtype") && entry["dtype"].is_string() &&
                          entry.contains("shape") && entry["shape"].is_array() && entry.contains("data_offsets") &&
                          entry["data_offsets"].is_array() && entry["data_offsets"].size() == 2;
    if (!complete) fail<CheckpointError>("{}: damaged: dtype, shape and two data_offsets are wanted", what);
    Extent extent;
    extent.tensor.name = name;
    const std::string dtype = entry["dtype"].get<std::string>();
    if (!parse_dtype(dtype, extent.tensor.dtype)) fail<CheckpointError>("{}: unknown element type '{}'", what, dtype);
    for (const json& n : entry["shape"]) extent.tensor.shape.push_back(get_count(n, what));
    extent.begin = get_count(entry["data_offsets"][0], what);
    extent.end = get_count(entry["data_offsets"][1], what);
    if (extent.begin > extent.end) fail<CheckpointError>("{}: damaged: it ends before it begins", what);
    const int64_t expected = checked_bytes(extent.tensor.shape, extent.tensor.dtype, what);
    if (extent.end - extent.begin != expected)
      fail<CheckpointError>("{}: damaged: {} {} takes {} bytes, the header gives it {}", what, dtype,
                            shape_text(extent.tensor.shape), expected, extent.end - extent.begin);
    data_end = std::max(data_end, extent.end);
    extents.push_back(std::move(extent));
  }
  const auto data_size = static_cast<int64_t>(data.size());
  if (data_end != data_size) {
    const auto before = static_cast<int64_t>(file_.bytes().size()) - data_size;
    fail<CheckpointError>("{}: damaged ({}): {} bytes expected, the file has {}", path_,
                          data_end > data_size ? "cut off, an incomplete download or copy?" : "something was appended",
                          before > std::numeric_limits<int64_t>::max() - data_end ? data_end : before + data_end,
                          file_.bytes().size());
  }
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) {
    return std::tie(a.begin, a.end, a.tensor.name) < std::tie(b.begin, b.end, b.tensor.name);
  });
  int64_t position = 0;
  for (Extent& extent : extents) {
    if (extent.begin != position)
      fail<CheckpointError>("{}: damaged: tensor '{}' {} what lies before it", path_, extent.tensor.name,
                            extent.begin < position ? "overlaps" : "leaves a gap to");
    position = extent.end;
    extent.tensor.bytes =
        data.subspan(static_cast<size_t>(extent.begin), static_cast<size_t>(extent.end - extent.begin));
    index_[extent.tensor.name] = tensors_.size();
    tensors_.push_back(std::move(extent.tensor));
  }
}

const TensorRef* SafetensorsFile::find(std::string_view name) const {
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : &tensors_[it->second];
}

// --- sets of files -----------------------------------------------------------------------------------------------

namespace {

constexpr char kIndexName[] = "model.safetensors.index.json";

json read_index(const std::string& path) {
  const MappedFile file = open_mapped(path);
  if (file.bytes().size() > kMaxHeaderBytes)
    fail<CheckpointError>("{}: damaged: {} bytes are too many for an index", path, file.bytes().size());
  json root = parse_object({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, path);
  if (!root.contains("weight_map") || !root["weight_map"].is_object())
    fail<CheckpointError>("{}: damaged: it has no weight_map", path);
  return root["weight_map"];
}

std::vector<std::string> safetensors_in(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (it->path().extension() == ".safetensors") paths.push_back(it->path().string());
  if (error) fail<CheckpointError>("cannot read the folder {}: {}", folder, error.message());
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

SafetensorsSet::SafetensorsSet(const std::string& path) {
  if (!is_folder(path)) {
    files_.emplace_back(path);
    return;
  }
  const std::string index_path = (fs::path(path) / kIndexName).string();
  std::map<std::string, std::set<std::string>> wanted;  // file -> tensors that the index promises
  if (path_exists(index_path)) {
    const json weight_map = read_index(index_path);
    for (const auto& [name, file] : weight_map.items()) {
      if (!file.is_string() || fs::path(file.get<std::string>()).filename() != file.get<std::string>())
        fail<CheckpointError>("{}: damaged: '{}' names no file of this folder", index_path, name);
      wanted[file.get<std::string>()].insert(name);
    }
  }
  const std::string single = (fs::path(path) / "model.safetensors").string();
  for (const std::string& file : safetensors_in(path)) {
    const bool belongs = !wanted.empty()       ? wanted.contains(fs::path(file).filename().string())
                         : path_exists(single) ? file == single
                                               : true;
    if (belongs)
      files_.emplace_back(file);
    else
      side_files_.push_back(file);
  }
  for (const auto& [file, names] : wanted)
    if (!path_exists((fs::path(path) / file).string()))
      fail<CheckpointError>("{}: promises {}, which is missing", index_path, file);
  if (files_.empty()) fail<CheckpointError>("{}: there is no .safetensors file in this folder", path);

  std::map<std::string_view, const SafetensorsFile*> owners;
  for (const SafetensorsFile& file : files_) {
    for (const TensorRef& tensor : file.tensors()) {
      const auto [it, is_new] = owners.emplace(tensor.name, &file);
      if (!is_new)
        fail<CheckpointError>("tensor '{}' stands in two files: {} and {}", tensor.name, it->second->path(),
                              file.path());
    }
  }
  for (const auto& [file, names] : wanted)
    for (const std::string& name : names)
      if (!owners.contains(name))
        fail<CheckpointError>("{}: promises tensor '{}' in {}, where it is not", index_path, name, file);
}

std::vector<const TensorRef*> SafetensorsSet::tensors() const {
  std::vector<const TensorRef*> all;
  for (const SafetensorsFile& file : files_)
    for (const TensorRef& tensor : file.tensors()) all.push_back(&tensor);
  return all;
}

const TensorRef* SafetensorsSet::find(std::string_view name) const {
  for (const SafetensorsFile& file : files_)
    if (const TensorRef* tensor = file.find(name)) return tensor;
  return nullptr;
}

// --- writing -----------------------------------------------------------------------------------------------------

namespace {

std::vector<const TensorOut*> in_file_order(std::span<const TensorOut> tensors) {
  std::vector<const TensorOut*> order;
  for (const TensorOut& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const TensorOut* a, const TensorOut* b) {
    const int64_t a_size = size_of(a->dtype), b_size = size_of(b->dtype);
    return a_size != b_size ? a_size > b_size : a->name < b->name;
  });
  for (size_t i = 1; i < order.size(); ++i)
    ESM_CHECK(order[i - 1]->name != order[i]->name, "tensor '{}' twice in one file", order[i]->name);
  return order;
}

// Compact JSON, "__metadata__" first, padded with spaces to a multiple of 8 bytes: what the reference implementation
// writes.
std::string header_text(std::span<const TensorOut* const> order, const std::map<std::string, std::string>& metadata) {
  std::string text = "{";
  if (!metadata.empty()) {
    text += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata)
      text += fmt::format("{}{}:{}", text.back() == '{' ? "" : ",", json_quote(key), json_quote(value));
    text += "}";
  }
  int64_t offset = 0;
  for (const TensorOut* tensor : order) {
    std::string shape;
    for (const int64_t n : tensor->shape) shape += fmt::format("{}{}", shape.empty() ? "" : ",", n);
    const int64_t end = offset + tensor->byte_count();
    text += fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", text == "{" ? "" : ",",
                        json_quote(tensor->name), dtype_name(tensor->dtype), shape, offset, end);
    offset = end;
  }
  text += "}";
  text.append(round_up(text.size(), size_t{8}) - text.size(), ' ');
  return text;
}

}  // namespace

WrittenFile write_safetensors(FileSystem& files, const std::string& path, std::span<const TensorOut> tensors,
                              const std::map<std::string, std::string>& metadata) {
  const std::vector<const TensorOut*> order = in_file_order(tensors);
  const std::string header = header_text(order, metadata);
  std::unique_ptr<OutputFile> out = files.create(path);
  Hasher hasher;
  WrittenFile written;
  const auto put = [&](std::span<const std::byte> bytes) {
    // In pieces, so that the hash reads what is still in the cache.
    constexpr size_t kPiece = size_t{1} << 20;
    for (size_t at = 0; at < bytes.size(); at += kPiece) {
      const auto piece = bytes.subspan(at, std::min(kPiece, bytes.size() - at));
      hasher.update(piece);
      out->write(piece);
    }
    written.bytes += static_cast<int64_t>(bytes.size());
  };

  std::array<std::byte, 8> length;
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<std::byte>(header.size() >> (8 * i) & 0xff);
  put(length);
  put(std::as_bytes(std::span(header)));
  for (const TensorOut* tensor : order) {
    const std::vector<std::byte> made = tensor->make ? tensor->make() : std::vector<std::byte>();
    const std::span<const std::byte> bytes = tensor->make ? std::span<const std::byte>(made) : tensor->bytes;
    ESM_CHECK(static_cast<int64_t>(bytes.size()) == tensor->byte_count(), "tensor '{}' {} {}: {} bytes given",
              tensor->name, dtype_name(tensor->dtype), shape_text(tensor->shape), bytes.size());
    put(bytes);
  }
  out->sync();
  out->close();
  written.hash = hasher.hex();
  return written;
}

}  // namespace esm::checkpoint
