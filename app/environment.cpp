#include "app/environment.h"

#include <cstdlib>

namespace esm::app {
namespace {

// An empty variable counts as none, as shells and the XDG specification have it.
std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::string cache_folder(const std::string& name) {
  if (const std::string cache = variable("XDG_CACHE_HOME"); !cache.empty()) return cache + "/esmtrain/" + name;
  if (const std::string home = variable("HOME"); !home.empty()) return home + "/.cache/esmtrain/" + name;
  return "";
}

}  // namespace

std::string data_cache_folder() { return cache_folder("data"); }

std::string kernel_cache_folder() { return cache_folder("kernels"); }

bool running_in_ci() { return !variable("CI").empty() && variable("CI") != "false"; }

}  // namespace esm::app
