// design.md section 3: folders include downwards only, third-party headers at their seam only.
#include "base/files.h"
#include "lint/include_rules.h"
#include "support/catch.h"

namespace {

lint::IncludeTable table() {
  return lint::parse_table(esm::read_text_file(ESM_SOURCE_DIR "/tests/lint/include_table.txt"));
}

}  // namespace

TEST_CASE("no file includes what the table does not allow") {
  std::string all;
  for (const std::string& violation : lint::include_violations(ESM_SOURCE_DIR, table())) all += violation + "\n";
  INFO(all);
  CHECK(all.empty());
}

TEST_CASE("planted violations are found, each with its line") {
  const esm::ScratchFolder scratch("lint");
  const std::string root = scratch.path();
  for (const char* folder : {"/src/base", "/src/config", "/src/models", "/src/extra", "/kernels", "/app"})
    esm::make_folders(root + folder);
  const auto write = [&](const std::string& path, const std::string& text) {
    esm::write_file_atomically(root + "/" + path, text);
  };
  write("src/base/good.cpp",
        "#include \"base/good.h\"\n#include <vector>\n#include <sys/stat.h>\n#include <fmt/core.h>\n");
  write("src/base/upward.cpp", "// a comment\n#include \"config/config.h\"\n");
  write("src/base/log.cpp", "#include <spdlog/logger.h>\n");
  write("src/base/other.cpp", "#  include   <spdlog/logger.h> // late\n");
  write("src/config/yaml_tree.cpp", "#include <yaml-cpp/parser.h>\n#include \"base/check.h\"\n");
  write("src/config/load.cpp", "#include <yaml-cpp/parser.h>\n");
  write("src/models/a.cpp", "#include \"data/batch.h\"\n#include <nlohmann/json.hpp>\n");
  write("src/models/a.h", "#include \"data/loader.h\"\n#include <nlohmann/json.hpp>\n");
  write("src/extra/a.h", "\n");
  write("kernels/a.cu", "#include \"base/check.h\"\n#include \"base/log.h\"\n#include <ATen/ATen.h>\n");
  write("app/a.cpp", "#include \"version_generated.h\"\n#include \"args.h\"\n");
  CHECK(lint::include_violations(root, table()) ==
        std::vector<std::string>{
            "app/a.cpp:2: args.h: write \"folder/file.h\"",
            "kernels/a.cu:2: base/log.h: kernels may not include src/base/log.h",
            "kernels/a.cu:3: ATen/ATen.h: kernels is not a seam of ATen for this file",
            "src/base/other.cpp:1: spdlog/logger.h: src/base is not a seam of spdlog for this file",
            "src/base/upward.cpp:2: config/config.h: src/base may not include src/config/config.h",
            "src/config/load.cpp:1: yaml-cpp/parser.h: src/config is not a seam of yaml-cpp for this file",
            "src/extra/a.h: the folder src/extra is not in the include table",
            "src/models/a.h:1: data/loader.h: src/models may not include src/data/loader.h",
            "src/models/a.h:2: nlohmann/json.hpp: src/models is not a seam of nlohmann for this file"});
}

TEST_CASE("a table that cannot be read is an error, not an empty table") {
  CHECK_THROWS(lint::parse_table("src/base | src/config\n"));
  CHECK_THROWS(lint::parse_table("src/base | | spdlog\n"));
  CHECK_THROWS(lint::parse_table("src/base | |\nsrc/base | |\n"));
  CHECK(table().size() == 16);
}
