#include "precision/layer_plan.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "base/check.h"
#include "config/suggest.h"

namespace esm::precision {
namespace {

constexpr std::string_view kKey = "layer_precision";

/// Layers `first` to `last`, counted from 1, and their recipe.
struct Span {
  int64_t first, last;
  Precision precision;
};

struct Reading {
  std::vector<Span> spans;
  std::vector<PlanProblem> problems;

  template <class... Args>
  void add(std::string_view key, fmt::format_string<Args...> format, Args&&... args) {
    problems.push_back({std::string(key), fmt::format(format, std::forward<Args>(args)...)});
  }
};

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

/// A number of digits only.
std::optional<int64_t> number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || text.front() == '-' || error != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

std::optional<Precision> find(std::string_view name) {
  for (const Recipe& recipe : recipes())
    if (recipe.name == name) return recipe.precision;
  return {};
}

/// "3" or "1-4".
void read_part(Reading& reading, std::string_view name, Precision precision, std::string_view part, int64_t layers) {
  const size_t dash = part.find('-');
  const std::optional<int64_t> first = number(trimmed(part.substr(0, dash)));
  const std::optional<int64_t> last = dash == std::string_view::npos ? first : number(trimmed(part.substr(dash + 1)));
  if (!first || !last)
    return reading.add(kKey, "{}: '{}' is no layer and no range of layers; write e.g. \"1-4, 7\"", name, part);
  if (*first == 0) return reading.add(kKey, "{}: '{}': layers are counted from 1", name, part);
  if (*first > *last)
    return reading.add(kKey, "{}: the range '{}' runs backwards; write {}-{}", name, part, *last, *first);
  if (layers > 0 && *last > layers)
    return reading.add(kKey, "{}: '{}' goes beyond the model, whose layers are 1 to {}", name, part, layers);
  for (const Span& other : reading.spans) {
    const int64_t both = std::max(*first, other.first);
    if (both <= std::min(*last, other.last))
      return reading.add(kKey, "{}: layer {} is named twice, here in '{}' and for {}", name, both, part,
                         find_recipe(other.precision).name);
  }
  reading.spans.push_back({*first, *last, precision});
}

void read_list(Reading& reading, const std::string& name, std::string_view list, int64_t layers) {
  const std::optional<Precision> precision = find(name);
  if (!precision) {
    std::vector<std::string> names;
    std::string all;
    for (const Recipe& recipe : recipes()) {
      if (recipe.precision == Precision::kFp32) continue;
      names.emplace_back(recipe.name);
      all += fmt::format("{}{}", all.empty() ? "" : ", ", recipe.name);
    }
    return reading.add(kKey, "there is no recipe '{}', only {}{}", name, all,
                       config::did_you_mean(config::suggest(name, names)));
  }
  if (*precision == Precision::kFp32)
    return reading.add(kKey, "fp32: layers in FP32 cannot be mixed with others, whose activations are BF16; use bf16");
  if (trimmed(list).empty())
    return reading.add(kKey, "{}: no layers; write e.g. \"1-4, 7\", or leave {} out", name, name);
  for (size_t at = 0; at <= list.size();) {
    const size_t comma = std::min(list.find(',', at), list.size());
    read_part(reading, name, *precision, trimmed(list.substr(at, comma - at)), layers);
    at = comma + 1;
  }
}

Reading read(Precision whole, const std::map<std::string, std::string>& layer_precision, int64_t first_bf16,
             int64_t last_bf16, int64_t layers) {
  Reading reading;
  for (const auto& [name, list] : layer_precision) read_list(reading, name, list, layers);
  if (whole == Precision::kFp32 && !layer_precision.empty())
    reading.add(kKey, "needs a precision other than fp32; leave it out (or write {}: {{}}), or use precision: bf16",
                kKey);
  if (layers > 0 && first_bf16 > layers - last_bf16)
    reading.add(first_bf16 >= last_bf16 ? "fp8.first_layers_bf16" : "fp8.last_layers_bf16",
                "the first {} and last {} layers are more than the {} of the model; for all of them write "
                "precision: bf16",
                first_bf16, last_bf16, layers);
  if (!find_recipe(whole).quantized()) return reading;
  // A layer at an end may be named, but only for what it is anyhow.
  for (const Span& span : reading.spans) {
    if (span.precision == Precision::kBf16) continue;
    const std::string_view name = find_recipe(span.precision).name;
    if (span.first <= first_bf16)
      reading.add("fp8.first_layers_bf16", "{} has layer {} in BF16, {} has it in {}; take it out of one of them",
                  first_bf16, span.first, kKey, name);
    if (layers > 0 && span.last > layers - last_bf16)
      reading.add("fp8.last_layers_bf16", "{} has layer {} in BF16, {} has it in {}; take it out of one of them",
                  last_bf16, span.last, kKey, name);
  }
  return reading;
}

bool any(const PrecisionPlan& plan, bool (Recipe::*what)() const) {
  return std::any_of(plan.layers.begin(), plan.layers.end(),
                     [what](Precision precision) { return (find_recipe(precision).*what)(); });
}

}  // namespace

bool PrecisionPlan::quantized() const { return any(*this, &Recipe::quantized); }
bool PrecisionPlan::delayed() const { return any(*this, &Recipe::delayed); }

std::vector<PlanProblem> plan_problems(Precision whole, const std::map<std::string, std::string>& layer_precision,
                                       int64_t first_bf16, int64_t last_bf16, int64_t layers) {
  return read(whole, layer_precision, first_bf16, last_bf16, layers).problems;
}

PrecisionPlan make_precision_plan(Precision whole, const std::map<std::string, std::string>& layer_precision,
                                  int64_t first_bf16, int64_t last_bf16, int64_t layers) {
  ESM_CHECK(layers > 0, "a plan for {} layers", layers);
  const Reading reading = read(whole, layer_precision, first_bf16, last_bf16, layers);
  std::string wrong;
  for (const PlanProblem& problem : reading.problems)
    wrong += fmt::format("{}{}: {}", wrong.empty() ? "" : "\n", problem.key, problem.what);
  if (!wrong.empty()) fail<ConfigError>("{}", wrong);

  PrecisionPlan plan{.layers = std::vector(static_cast<size_t>(layers), whole)};
  const auto set = [&plan](int64_t first, int64_t last, Precision precision) {
    for (int64_t layer = first; layer <= last; ++layer) plan.layers[static_cast<size_t>(layer - 1)] = precision;
  };
  if (find_recipe(whole).quantized()) {
    set(1, first_bf16, Precision::kBf16);
    set(layers - last_bf16 + 1, layers, Precision::kBf16);
  }
  for (const Span& span : reading.spans) set(span.first, span.last, span.precision);
  return plan;
}

std::string layer_ranges(const std::vector<int64_t>& layers) {
  std::string text;
  for (size_t i = 0; i < layers.size();) {
    size_t end = i + 1;
    while (end < layers.size() && layers[end] == layers[end - 1] + 1) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", layers[i]);
    if (end > i + 1) text += fmt::format("-{}", layers[end - 1]);
    i = end;
  }
  return text;
}

}  // namespace esm::precision
