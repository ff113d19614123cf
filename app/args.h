// The command line of one subcommand: positional arguments, options, settings of a config, and the help text that
// describes them.
//
//   int prepare(int argc, char** argv) {
//     std::vector<std::string> inputs;
//     std::string out;
//     std::vector<config::Override> overrides;
//     Args args("data prepare", "Turns FASTA files into token shards.");
//     args.positionals(inputs, "INPUT", "FASTA files or globs, plain or gzip.")
//         .option(out, "--out", "DIR", "Folder for the shards.", Args::kRequired)
//         .settings<data::PrepareConfig>(overrides)
//         .example("esmtrain data prepare a.fasta.gz --out shards", "one file");
//     if (!args.parse(argc, argv)) return 0;   // --help was asked for and printed
//     ...
#pragma once
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/cli.h"
#include "config/config.h"

namespace esm::app {

class Args {
 public:
  enum Need { kOptional, kRequired };

  /// command: what follows "esmtrain" ("train", "data prepare"); summary: one or more sentences.
  Args(std::string command, std::string summary);
  ~Args();
  Args(const Args&) = delete;
  Args& operator=(const Args&) = delete;

  /// One value by position; required unless kOptional is given.
  Args& positional(std::string& value, std::string_view name, std::string_view help, Need need = kRequired);
  /// One or more values by position.
  Args& positionals(std::vector<std::string>& values, std::string_view name, std::string_view help);

  /// `--name`: sets `value` to true.
  Args& flag(bool& value, std::string_view name, std::string_view help);

  /// `--name VALUE` or `--name=VALUE`. What `value` holds before parse() is the default and stands in the help text
  /// (unless empty). Numbers are written as in a config: 1e6 is an integer too. A second use is an error, except that a
  /// vector collects all of them (and drops its default).
  Args& option(std::string& value, std::string_view name, std::string_view metavar, std::string_view help,
               Need need = kOptional);
  Args& option(int64_t& value, std::string_view name, std::string_view metavar, std::string_view help,
               Need need = kOptional);
  Args& option(double& value, std::string_view name, std::string_view metavar, std::string_view help,
               Need need = kOptional);
  Args& option(std::vector<std::string>& values, std::string_view name, std::string_view metavar, std::string_view help,
               Need need = kOptional);
  /// One of `choices`.
  Args& choice(std::string& value, std::string_view name, std::initializer_list<std::string_view> choices,
               std::string_view help, Need need = kOptional);

  /// The help text leaves out the argument that was declared last.
  Args& hide();

  /// Also takes `--set key=value`, `--key value` and `--key=value` for every field of C, in the order of the command
  /// line, for config::load(). The help text lists the fields.
  template <class C>
  Args& settings(std::vector<config::Override>& overrides) {
    return settings(overrides, config::entries(C{}));
  }
  Args& settings(std::vector<config::Override>& overrides, std::vector<config::Entry> fields);

  /// A line of the "Examples" part of the help text.
  Args& example(std::string command_line, std::string what);

  /// argv[0] is skipped. False when --help (or -h) was given: the help text has been printed on standard output.
  /// Throws ConfigError (exit code 2) that names the argument, with the nearest names for an unknown option.
  bool parse(int argc, char** argv);

  /// The text that --help prints.
  std::string help() const;

 private:
  struct Item;
  Args& add(Item item);
  std::string usage() const;
  void assign(const config::Arguments& given) const;

  std::string command_;
  std::string summary_;
  std::vector<Item> items_;
  std::vector<std::pair<std::string, std::string>> examples_;
  std::vector<config::Entry> fields_;
  std::vector<config::Override>* overrides_ = nullptr;
};

}  // namespace esm::app
