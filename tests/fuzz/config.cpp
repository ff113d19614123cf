#include "config/config.h"
#include "base/check.h"
#include "fuzz/targets.h"
#include "train/run_config.h"

namespace esm::fuzz {

void run_config(std::string_view bytes) {
  train::RunConfig config;
  try {
    config::load_text(config, std::string(bytes), "fuzz.yaml");
  } catch (const ConfigError&) {
    return;
  }
  const std::string printed = config::to_yaml(config);
  train::RunConfig again;
  config::load_text(again, printed, "printed.yaml");
  ESM_CHECK(config::to_yaml(again) == printed, "printed and read again, the config differs:\n{}", printed);
}

}  // namespace esm::fuzz
