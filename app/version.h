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

/// "0.1.0, commit 0123abc, preset cuda (Release), GNU 12.2.0, nvcc 13.0.88, CUDA code for 90a".
std::string build_text();

/// GPU architectures that this program holds kernels for, "80,90a"; "none" without CUDA.
std::string built_architectures();

}  // namespace esm::app
