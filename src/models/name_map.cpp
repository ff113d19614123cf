#include "models/name_map.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"

namespace esm::models {
namespace {

std::string shape_text(std::span<const int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += fmt::format("{}{}", i == 0 ? "" : ", ", shape[i]);
  return text + "]";
}

std::string list_of(const std::vector<std::string>& names) {
  constexpr size_t kShown = 6;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i) text += (i == 0 ? "" : ", ") + names[i];
  return names.size() <= kShown ? text : text + ", ...";
}

}  // namespace

std::vector<NamedShape> native_tensors(const Esm2Config& config) {
  const int64_t h = config.hidden, f = config.ffn_size();
  std::vector<NamedShape> list;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape) {
    list.push_back({name, std::move(shape)});
  };
  const auto add_norm = [&](const std::string& name) {
    add(name + ".weight", {h});
    add(name + ".bias", {h});
  };
  const auto add_linear = [&](const std::string& name, int64_t out, int64_t in) {
    add(name + ".weight", {out, in});
    add(name + ".bias", {out});
  };
  add("embedding.weight", {kVocabSize, h});
  for (int64_t n = 0; n < config.layers; ++n) {
    const std::string layer = fmt::format("layers.{}.", n);
    add_norm(layer + "attention_norm");
    add_linear(layer + "attention.qkv", 3 * h, h);
    add_linear(layer + "attention.out", h, h);
    add_norm(layer + "ffn_norm");
    add_linear(layer + "ffn.fc1", f, h);
    add_linear(layer + "ffn.fc2", h, f);
  }
  add_norm("final_norm");
  add_linear("head.dense", h, h);
  add_norm("head.norm");
  add("head.bias", {kVocabSize});
  return list;
}

std::vector<NamedShape> native_contact_tensors(const Esm2Config& config) {
  return {{"contact.weight", {1, config.layers * config.heads}}, {"contact.bias", {1}}};
}

int64_t RowMap::native_row(int64_t row, int64_t rows) const {
  switch (kind) {
    case Kind::kSlice: return offset + row;
    case Kind::kPadded: return row < native_rows ? row : -1;
    case Kind::kInterleavedQkv: {
      const int64_t hidden = rows / 3, head_dim = hidden / heads;
      const int64_t head = row / (3 * head_dim), part = row / head_dim % 3, i = row % head_dim;
      return part * hidden + head * head_dim + i;
    }
  }
  return -1;
}

void ForeignLayout::add(std::string name, std::vector<int64_t> shape, std::string native, RowMap rows) {
  tensors.push_back({.name = std::move(name), .shape = std::move(shape), .native = std::move(native), .rows = rows});
}

void ForeignLayout::add_norm(const std::string& name, int64_t size, const std::string& native) {
  add(name + ".weight", {size}, native + ".weight");
  add(name + ".bias", {size}, native + ".bias");
}

void ForeignLayout::add_linear(const std::string& name, int64_t out, int64_t in, const std::string& native,
                               RowMap rows) {
  add(name + ".weight", {out, in}, native + ".weight", rows);
  add(name + ".bias", {out}, native + ".bias", rows);
}

const ForeignTensor* ForeignLayout::find(std::string_view name) const {
  for (const ForeignTensor& tensor : tensors)
    if (tensor.name == name) return &tensor;
  return nullptr;
}

LayoutMatch match_layout(const ForeignLayout& layout, std::span<const NamedShape> file,
                         std::string (*canonical_name)(std::string_view), bool (*is_passed_through)(std::string_view),
                         const std::string& where) {
  LayoutMatch match;
  std::map<std::string, const NamedShape*, std::less<>> by_name;
  for (const NamedShape& tensor : file) {
    const auto [it, is_new] = by_name.emplace(canonical_name(tensor.name), &tensor);
    if (!is_new)
      fail<CheckpointError>("{}: '{}' and '{}' are two spellings of one tensor", where, it->second->name, tensor.name);
  }
  std::vector<std::string> missing, unexpected;
  std::set<std::string_view> used;
  for (const ForeignTensor& tensor : layout.tensors) {
    const auto it = by_name.find(tensor.name);
    if (it == by_name.end()) {
      if (tensor.required && !tensor.tied) missing.push_back(tensor.name);
      continue;
    }
    if (it->second->shape != tensor.shape)
      fail<CheckpointError>("{}: '{}' is {}, the model of its {} has {}: a model of another size or kind", where,
                            it->second->name, shape_text(it->second->shape), layout.sizes, shape_text(tensor.shape));
    match.pairs.push_back({.tensor = &tensor, .source = it->second->name});
    used.insert(tensor.name);
  }
  for (const auto& [name, tensor] : by_name) {
    if (used.contains(name)) continue;
    if (is_passed_through(name))
      match.passed_through.push_back(tensor->name);
    else
      unexpected.push_back(tensor->name);
  }
  if (missing.empty() && unexpected.empty()) return match;
  std::string message =
      fmt::format("{}: not the tensors of a {} ESM-2 with the sizes of its {}", where, layout.format, layout.sizes);
  if (!missing.empty()) message += fmt::format("; {} missing: {}", missing.size(), list_of(missing));
  if (!unexpected.empty()) message += fmt::format("; {} unexpected: {}", unexpected.size(), list_of(unexpected));
  fail<CheckpointError>("{}", message);
}

}  // namespace esm::models
