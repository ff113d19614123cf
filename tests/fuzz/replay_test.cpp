// What fuzzing has found, and the seeds that it starts from, as an ordinary test.
#include <algorithm>
#include <filesystem>

#include "base/files.h"
#include "fuzz/targets.h"
#include "support/catch.h"

using esm::fuzz::Target;
namespace fs = std::filesystem;

namespace {

const fs::path kData = ESM_SOURCE_DIR "/tests/data";

void replay(const Target& target, const fs::path& folder) {
  int64_t files = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    INFO(target.name << ": " << entry.path());
    ++files;
    CHECK_NOTHROW(target.run(esm::read_text_file(entry.path().string())));
  }
  CHECK(files > 0);
}

}  // namespace

TEST_CASE("the kept cases of every fuzz target end in success or in the format's own error") {
  for (const Target& target : esm::fuzz::kTargets) replay(target, kData / "fuzz_cases" / target.name);
  CHECK(std::distance(fs::directory_iterator(kData / "fuzz_cases"), fs::directory_iterator()) ==
        std::ssize(esm::fuzz::kTargets));
}

TEST_CASE("every odd file ends in success or in the format's own error, whichever reader gets it") {
  for (const Target& target : esm::fuzz::kTargets)
    for (const char* folder : {"fasta", "csv", "config", "hdf5", "safetensors"})
      replay(target, kData / "oddities" / folder);
}
