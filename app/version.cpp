#include "app/version.h"

#include <fmt/core.h>

#include "data/hdf5_shards.h"
#include "device/versions.h"
#include "ops/version.h"
#include "version_generated.h"

namespace esm::app {

std::vector<std::pair<std::string, std::string>> program_versions() {
  std::vector<std::pair<std::string, std::string>> versions{
      {"esmtrain", kEsmVersion}, {"commit", kEsmCommit}, {"preset", kEsmPreset}, {"LibTorch", ops::libtorch_version()}};
  for (auto& library : device::library_versions()) versions.push_back(std::move(library));
  versions.emplace_back("cuDNN", ops::cudnn_version());
  versions.emplace_back("HDF5", data::hdf5_version());
  return versions;
}

std::string version_text() {
  std::string text;
  for (const auto& [name, version] : program_versions()) text += fmt::format("{} {}\n", name, version);
  return text;
}

std::string build_text() {
  return fmt::format("{}, commit {}, preset {} ({}), {}, CUDA code for {}", kEsmVersion, kEsmCommit, kEsmPreset,
                     kEsmBuildType, kEsmCompiler, kEsmCudaArchitectures);
}

std::string built_architectures() { return kEsmCudaArchitectures; }

}  // namespace esm::app
