// Size of files, machine paths, and the generated reference page.
#include <algorithm>
#include <filesystem>
#include <regex>
#include <sstream>

#include "base/files.h"
#include "cli/process.h"
#include "support/catch.h"

namespace {

namespace fs = std::filesystem;

/// Files that are (or are about to be) under version control, relative to the root; without git, as in an exported
/// archive, everything except build/.
std::vector<std::string> tracked_files() {
  std::vector<std::string> files;
  const esm::test::Finished git = esm::test::run({"git", "-c", "safe.directory=*", "-C", ESM_SOURCE_DIR, "ls-files",
                                                  "--cached", "--others", "--exclude-standard"});
  if (git.exit_code == 0) {
    std::istringstream lines(git.out);
    for (std::string line; std::getline(lines, line);)
      if (fs::is_regular_file(fs::path(ESM_SOURCE_DIR) / line)) files.push_back(line);
  } else {
    for (const auto& entry : fs::recursive_directory_iterator(ESM_SOURCE_DIR)) {
      const std::string path = entry.path().lexically_relative(ESM_SOURCE_DIR).string();
      if (entry.is_regular_file() && !path.starts_with("build/")) files.push_back(path);
    }
  }
  return files;
}

std::string content(const std::string& path) { return esm::read_text_file(std::string(ESM_SOURCE_DIR) + "/" + path); }

bool is_code(const std::string& path) {
  return path.ends_with(".h") || path.ends_with(".cpp") || path.ends_with(".cu") || path.ends_with(".cuh") ||
         path.ends_with(".sh") || path.ends_with(".cmake");
}

}  // namespace

TEST_CASE("no file of code is longer than 600 lines, in kernels 800") {
  const std::vector<std::string> files = tracked_files();
  REQUIRE(files.size() > 50);
  for (const std::string& path : files) {
    if (!is_code(path)) continue;
    const std::string text = content(path);
    INFO(path);
    CHECK(std::count(text.begin(), text.end(), '\n') <= (path.starts_with("kernels/") ? 800 : 600));
  }
}

TEST_CASE("no file holds a path of the machine that it was written on") {
  // Spelt in two halves so that this file passes its own test. A path below a variable (${x}/home/) is another matter.
  const std::regex machine_path(std::string("(^|[^A-Za-z0-9_.})/~-])/(") + "work|root|home|Users" + ")/[A-Za-z0-9_.]");
  REQUIRE(std::regex_search(std::string("see /") + "work/x", machine_path));
  REQUIRE_FALSE(std::regex_search(std::string("$ROOT/") + "work/x", machine_path));
  for (const std::string& path : tracked_files()) {
    if (path.ends_with(".gz") || path.ends_with(".safetensors") || path.ends_with(".h5") || path.ends_with(".bin"))
      continue;
    std::istringstream lines(content(path));
    int number = 0;
    for (std::string line; std::getline(lines, line);) {
      ++number;
      if (line.size() > 4000 || !std::regex_search(line, machine_path)) continue;
      FAIL_CHECK(path << ":" << number << ": " << line);
    }
  }
}

TEST_CASE("configs/REFERENCE.md is what the program says now") {
  const esm::test::Finished now = esm::test::run({ESM_EXE, "config", "reference"});
  REQUIRE(now.exit_code == 0);
  INFO("renew it with: esmtrain config reference > configs/REFERENCE.md");
  CHECK(content("configs/REFERENCE.md") == now.out);
}
