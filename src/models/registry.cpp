#include "models/registry.h"

#include <array>

#include "base/check.h"

namespace esm::models {
namespace {

std::unique_ptr<Model> make_esm2(const Context& context, const Esm2Config& config, const ModelOptions& options) {
  return std::make_unique<Esm2>(context, config, options);
}

constexpr std::array kFamilies{
    Family{"esm2", "protein language model, packed ESM-2", make_esm2},
};

}  // namespace

std::span<const Family> families() { return kFamilies; }

const Family& find_family(std::string_view name) {
  std::string known;
  for (const Family& family : kFamilies) {
    if (family.name == name) return family;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", family.name);
  }
  fail<ConfigError>("no model family is called '{}'; known: {}", name, known);
}

}  // namespace esm::models
