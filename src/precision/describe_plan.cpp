#include "precision/describe_plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "precision/layer_plan.h"

namespace esm::precision {
namespace {

/// In order of first appearance.
template <class Key, class Value>
class Groups {
 public:
  Value& operator[](const Key& key) {
    const auto found = std::find_if(items.begin(), items.end(), [&](const auto& item) { return item.first == key; });
    return found != items.end() ? found->second : items.emplace_back(key, Value{}).second;
  }
  std::vector<std::pair<Key, Value>> items;
};

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

/// "layers 1-33", "layer 1"; "" for what lies outside of them.
std::string where(std::vector<int64_t> layers) {
  std::sort(layers.begin(), layers.end());
  if (layers.back() == 0) return "";
  return fmt::format("layer{} {}", layers.size() == 1 ? "" : "s", layer_ranges(layers));
}

/// What is said of a linear layer; nothing: "".
template <class Saying>
std::vector<std::string> lines(std::span<const PlannedLinear> linears, const Saying& saying) {
  struct Alike {
    std::string text;
    std::vector<std::string> names;
    bool whole_layer;
    bool operator==(const Alike&) const = default;
  };
  Groups<int64_t, Groups<std::string, std::vector<std::string>>> by_layer;
  for (const PlannedLinear& linear : linears) by_layer[linear.layer][saying(linear)].push_back(linear.name);

  Groups<Alike, std::vector<int64_t>> alike;
  for (const auto& [layer, by_text] : by_layer.items)
    for (const auto& [text, names] : by_text.items)
      if (!text.empty()) alike[{text, names, by_text.items.size() == 1}].push_back(layer);

  std::vector<std::string> result;
  for (const auto& [what, layers] : alike.items) {
    const std::string place = where(layers);
    const bool short_text = what.whole_layer && what.text.find(' ') == std::string::npos;  // "BF16"
    if (place.empty())
      result.push_back(fmt::format("{}: {}", joined(what.names), what.text));
    else if (short_text)
      result.push_back(fmt::format("{}: {}", place, what.text));
    else
      result.push_back(fmt::format("{}: {}: {}", place, joined(what.names), what.text));
  }
  return result;
}

std::string formats_text(const PlannedLinear& linear) {
  const LinearFormats& formats = linear.formats;
  if (!formats.quantized()) return std::string(format_name(formats.x.format));
  std::string text;
  for (const GemmRole role : {GemmRole::kForward, GemmRole::kDgrad, GemmRole::kWgrad})
    text += fmt::format("{}{} {}", text.empty() ? "" : "; ", enum_names(role)[static_cast<size_t>(role)],
                        describe(formats.gemm(role), formats.path == Path::kEmulated));
  return text;
}

std::string why_text(const PlannedLinear& linear) {
  if (linear.formats.why.empty()) return "";
  return fmt::format("{}: {}", find_recipe(linear.recipe).name, linear.formats.why);
}

}  // namespace

std::vector<std::string> describe_plan(std::span<const PlannedLinear> linears) {
  std::vector<std::string> result = lines(linears, formats_text);
  for (std::string& line : lines(linears, why_text)) result.push_back(std::move(line));
  if (std::any_of(linears.begin(), linears.end(), [](const PlannedLinear& linear) {
        return linear.formats.path == Path::kHardware && linear.formats.small_groups();
      }))
    result.push_back(
        "MXFP8 and NVFP4 on tensor cores: not run by us, who had no such device; `esmtrain doctor` checks them here");
  return result;
}

}  // namespace esm::precision
