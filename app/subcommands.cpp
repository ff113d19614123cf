#include "app/subcommands.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "base/check.h"
#include "config/suggest.h"

namespace esm::app {

int run_subcommand(std::string_view program, std::string_view summary, std::span<const Subcommand> table, int argc,
                   char** argv) {
  const std::string name = argc > 1 ? argv[1] : "";
  if (name == "--help" || name == "-h" || name == "help") {
    size_t width = 0;
    for (const Subcommand& entry : table) width = std::max(width, entry.name.size());
    std::string text = fmt::format("{}\n\nUsage: {} COMMAND ...\n\nCommands:\n", summary, program);
    for (const Subcommand& entry : table) text += fmt::format("  {:{}}  {}\n", entry.name, width, entry.help);
    text += fmt::format("\n`{} COMMAND --help` says more.\n", program);
    std::fputs(text.c_str(), stdout);
    return 0;
  }
  std::vector<std::string> names;
  std::string all;
  for (const Subcommand& entry : table) {
    if (name == entry.name) return entry.run(argc - 1, argv + 1);
    names.emplace_back(entry.name);
    all += fmt::format("{}{}", all.empty() ? "" : ", ", entry.name);
  }
  if (name.empty()) fail<ConfigError>("{}: expected a command: {}; `{} --help` says more", program, all, program);
  fail<ConfigError>("{}: unknown command '{}', expected {}{}", program, name, all,
                    config::did_you_mean(config::suggest(name, names)));
}

}  // namespace esm::app
