// Model folders of the foreign formats, made from the golden ones.
#pragma once
#include <algorithm>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/files.h"
#include "support/catch.h"
#include "train/model_io.h"

namespace esm::test {
namespace fs = std::filesystem;
using checkpoint::SafetensorsSet;
using checkpoint::TensorOut;
using checkpoint::TensorRef;
using train::ExportResult;
using train::Format;

inline const std::string kData = std::string(ESM_SOURCE_DIR) + "/tests/data/";
inline const std::string kTinyHf = kData + "oddities/safetensors/tiny_hf.safetensors";

inline std::string model_file(const std::string& golden) { return kData + "golden/" + golden + "/model.safetensors"; }

// A golden folder without io.safetensors, which is no part of the model.
struct Source {
  ScratchFolder scratch{"model-io"};
  std::string path;

  explicit Source(const std::string& golden) : path(scratch.path() + "/source") {
    fs::create_directory(path);
    for (const char* name : {"model.safetensors", "config.json"})
      fs::copy(kData + "golden/" + golden + "/" + name, path);
    fs::permissions(path + "/config.json", fs::perms::owner_write, fs::perm_options::add);
  }
  std::string out(const std::string& name) const { return scratch.path() + "/" + name; }
};

inline std::string published(std::string name) {
  for (const auto& [from, to] : {std::pair<std::string, std::string>(".gamma", ".weight"), {".beta", ".bias"}})
    if (name.ends_with(from)) name = name.substr(0, name.size() - from.size()) + to;
  return name;
}

// Equal sets of tensors, byte for byte; LayerNorm spellings unified on the left.
inline void check_equal_sets(const std::string& left, const std::string& right) {
  const SafetensorsSet a(left), b(right);
  CHECK(a.tensors().size() == b.tensors().size());
  for (const TensorRef* tensor : a.tensors()) {
    const TensorRef* other = b.find(published(tensor->name));
    INFO(tensor->name);
    REQUIRE(other != nullptr);
    CHECK(other->dtype == tensor->dtype);
    CHECK(other->shape == tensor->shape);
    CHECK(std::equal(tensor->bytes.begin(), tensor->bytes.end(), other->bytes.begin(), other->bytes.end()));
  }
}

inline ExportResult convert(const std::string& in, const std::string& out, Format format, bool force = false) {
  return train::export_model(train::open_model(in),
                             {.format = format, .out = out, .dtype = {}, .force = force, .versions = {}});
}

inline std::string refusal(const std::string& path) {
  try {
    train::open_model(path);
    return "";
  } catch (const CheckpointError& e) {
    return e.what();
  }
}

// Rewrites the tensors of `from` as the single file `to`.
inline void rewrite(const std::string& from, const std::string& to,
                    const std::function<void(std::vector<TensorOut>&)>& change) {
  const SafetensorsSet set(from);
  std::vector<TensorOut> tensors;
  for (const TensorRef* tensor : set.tensors())
    tensors.push_back(
        {.name = tensor->name, .dtype = tensor->dtype, .shape = tensor->shape, .bytes = tensor->bytes, .make = {}});
  change(tensors);
  fs::remove(to);
  checkpoint::write_safetensors(checkpoint::FileSystem::real(), to, tensors, {});
}

inline TensorOut& tensor_of(std::vector<TensorOut>& tensors, const std::string& name) {
  for (TensorOut& tensor : tensors)
    if (tensor.name == name) return tensor;
  fail<InternalError>("no tensor {}", name);
}

}  // namespace esm::test
