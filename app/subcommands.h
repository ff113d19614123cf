// A table of subcommands and the choice among them: `esmtrain CMD ...` and, with the same code, `esmtrain data
// prepare`.
#pragma once
#include <span>
#include <string_view>

namespace esm::app {

struct Subcommand {
  std::string_view name;
  std::string_view help;  // one line
  int (*run)(int argc, char** argv);
};

/// Runs the entry of `table` that argv[1] names, with argv[1] as its argv[0]; returns its exit code. `--help`, `-h` or
/// the word `help` prints `summary` and the table on standard output and returns 0. Throws ConfigError (exit code 2)
/// for a missing or unknown name, with the nearest ones.
///   program: what the user types before the name, for example "esmtrain data".
int run_subcommand(std::string_view program, std::string_view summary, std::span<const Subcommand> table, int argc,
                   char** argv);

}  // namespace esm::app
