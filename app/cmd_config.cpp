// esmtrain config show | check | reference
#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include "app/args.h"
#include "app/commands.h"
#include "app/subcommands.h"
#include "config/config.h"
#include "train/run_config.h"

namespace esm::app {
namespace {

void print(const std::string& text) { std::fputs(text.c_str(), stdout); }

int show(int argc, char** argv) {
  std::string path;
  bool with_origins = false;
  std::vector<config::Override> overrides;
  Args args("config show", "Prints the resolved config: defaults, the file and what it extends, the command line.");
  args.positional(path, "CONFIG", "YAML file.")
      .flag(with_origins, "--origins", "Say behind each value where it came from.")
      .settings<train::RunConfig>(overrides)
      .example("esmtrain config show configs/quickstart.yaml --set train.max_steps=20 --origins", "with origins");
  if (!args.parse(argc, argv)) return 0;

  train::RunConfig run;
  const config::Loaded loaded = config::load(run, path, overrides);
  print(config::to_yaml(run, with_origins ? &loaded.origins : nullptr));
  return 0;
}

int check(int argc, char** argv) {
  std::string path;
  std::vector<config::Override> overrides;
  Args args("config check", "Checks a config without running it: prints `ok`, or every error and exits with code 2.");
  args.positional(path, "CONFIG", "YAML file.")
      .settings<train::RunConfig>(overrides)
      .example("esmtrain config check my.yaml", "");
  if (!args.parse(argc, argv)) return 0;

  train::RunConfig run;
  config::load(run, path, overrides);
  print("ok\n");
  return 0;
}

int reference(int argc, char** argv) {
  Args args("config reference", "Prints the reference page of all config keys (configs/REFERENCE.md) as Markdown.");
  if (!args.parse(argc, argv)) return 0;
  print(config::reference_markdown<train::RunConfig>("Configuration reference"));
  return 0;
}

constexpr std::array kCommands{
    Subcommand{"show", "print the resolved config", show},
    Subcommand{"check", "list everything that is wrong with a config", check},
    Subcommand{"reference", "print the reference page of all keys", reference},
};

}  // namespace

int cmd_config(int argc, char** argv) {
  return run_subcommand("esmtrain config", "Shows, checks and explains configs.", kCommands, argc, argv);
}

}  // namespace esm::app
