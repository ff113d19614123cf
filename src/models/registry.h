// The model families of this program.
#pragma once
#include <memory>
#include <span>
#include <string_view>

#include "models/esm2.h"

namespace esm::models {

struct Family {
  std::string_view name;  // "esm2"
  std::string_view description;
  std::unique_ptr<Model> (*make)(const Context& context, const Esm2Config& config, const ModelOptions& options);
};

/// All families; a new model is one more line in registry.cpp.
std::span<const Family> families();

/// Throws ConfigError, which lists the known names.
const Family& find_family(std::string_view name);

}  // namespace esm::models
