// Versions of this program and of the libraries that it runs on: for `esmtrain --version` and for checkpoints.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace esm::app {

/// (name, version), own ones first: esmtrain, commit, preset, LibTorch, CUDA, ...; "not built in" for what the preset
/// leaves out.
std::vector<std::pair<std::string, std::string>> program_versions();

/// The same, one a line: what --version prints.
std::string version_text();

}  // namespace esm::app
