// The only place (beside dist/) that reads environment variables.
#pragma once
#include <string>

namespace esm::app {

/// $XDG_CACHE_HOME/esmtrain/data, else ~/.cache/esmtrain/data, else "" (no home).
std::string data_cache_folder();
/// The same with .../esmtrain/kernels: what was found by timing on this machine.
std::string kernel_cache_folder();
/// CI systems set CI=true: plain lines instead of a live one.
bool running_in_ci();

}  // namespace esm::app
