#include "app/environment.h"

#include <cstdlib>

namespace esm::app {
namespace {

// An empty variable counts as none, as shells and the XDG specification have it.
std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

std::string data_cache_folder() {
  if (const std::string cache = variable("XDG_CACHE_HOME"); !cache.empty()) return cache + "/esmtrain/data";
  if (const std::string home = variable("HOME"); !home.empty()) return home + "/.cache/esmtrain/data";
  return "";
}

bool running_in_ci() { return !variable("CI").empty() && variable("CI") != "false"; }

}  // namespace esm::app
