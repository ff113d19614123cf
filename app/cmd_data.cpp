// esmtrain data prepare|inspect|verify
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <string>
#include <vector>

#include "app/args.h"
#include "app/commands.h"
#include "app/subcommands.h"
#include "base/check.h"
#include "base/files.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/units.h"
#include "data/inspect.h"
#include "data/prepare.h"
#include "data/verify.h"

namespace esm::app {
namespace {

/// On a terminal one line that renews itself, elsewhere a line of the log every ten seconds.
data::ProgressCallback progress_shower(const char* what) {
  if (::isatty(STDERR_FILENO) == 1)
    return [what](const data::PrepareProgress& p) {
      fmt::print(stderr, "\r\033[K{}: {}{}", what, data::progress_text(p), p.finished ? "\n" : "");
    };
  return [what, next_s = 10.0](const data::PrepareProgress& p) mutable {
    if (p.seconds < next_s) return;
    next_s = p.seconds + 10.0;
    log::info("{}: {}", what, data::progress_text(p));
  };
}

int prepare(int argc, char** argv) {
  std::vector<std::string> inputs;
  std::string out;
  data::PrepareOptions options;
  int64_t shard_mib = options.max_shard_bytes >> 20;
  Args args("data prepare",
            "Reads protein sequences and writes a folder of token shards with a report of what was read, repaired and "
            "skipped. Training on the folder starts at once; training on the files does the same into a cache.");
  args.positionals(inputs, "INPUT",
                   "FASTA, CSV or TSV files (plain, gzip or zstd), patterns like 'dir/*.fasta.gz', or - for standard "
                   "input.")
      .option(out, "--out", "DIR", "Folder to make; it appears as a whole or not at all.", Args::kRequired)
      .option(options.min_length, "--min-length", "N", "Skip records of fewer residues.")
      .choice(options.format, "--format", {"auto", "fasta", "csv", "tsv"},
              "Format of all inputs; auto: by their names, FASTA for standard input.")
      .option(options.table.sequence_column, "--sequence-column", "NAME",
              "Tables: the column with the sequences; else sequence, seq, protein_sequence, ... is looked for.")
      .option(options.table.id_column, "--id-column", "NAME",
              "Tables: the column with the ids; else id, name, accession, ... is looked for; none: no ids.")
      .option(options.table.target_column, "--target-column", "NAME",
              "Tables: leave rows out that have no value here; else target, if there; none: keep all rows.")
      .choice(options.table.split, "--split", {"train", "valid", "test"},
              "Tables: only rows of this split, by the columns set and validation (FLIP); else all rows.")
      .option(shard_mib, "--max-shard-mib", "N", "Size of a shard; as much memory is used.")
      .flag(options.force, "--force", "Replace DIR if it holds shards of other data.")
      .example("esmtrain data prepare uniref50.fasta.gz --out uniref50", "one file")
      .example("esmtrain data prepare 'parts/*.fasta' --out all --min-length 30", "many files, no short peptides")
      .example("zstdcat big.csv.zst | esmtrain data prepare - --format csv --out big", "from standard input");
  if (!args.parse(argc, argv)) return 0;
  if (options.min_length < 1) fail<ConfigError>("--min-length must be at least 1, found {}", options.min_length);
  if (shard_mib < 1 || shard_mib > 65536)
    fail<ConfigError>("--max-shard-mib must be from 1 to 65536, found {}", shard_mib);

  const StopSignals signals;
  options.max_shard_bytes = shard_mib << 20;
  options.progress = progress_shower("preparing");
  options.should_stop = [] { return StopSignals::received() != 0; };
  const data::PrepareReport report = data::prepare(inputs, out, options);
  if (report.already_there) {
    fmt::print("{} holds these data already; nothing to do\n{}", out, read_text_file(out + "/report.txt"));
  } else {
    fmt::print("{}{} {} in {}, report in {}/report.json\n", data::to_text(report), report.shards,
               report.shards == 1 ? "shard" : "shards", out, out);
  }
  return 0;
}

int inspect(int argc, char** argv) {
  std::vector<std::string> paths;
  data::InspectOptions options;
  std::vector<std::string> budgets;
  bool json = false;
  Args args(
      "data inspect",
      "Says what a data set is made of: counts, what would be repaired or skipped, lengths, composition, repeated "
      "sequences, and how full packed batches get at several budgets. Writes nothing.");
  args.positionals(paths, "PATH", "Folders of `data prepare`, shards, FASTA, CSV or TSV files, patterns, or -.")
      .option(options.max_tokens, "--max-tokens", "N", "Longest sequence in a batch (data.max_tokens).")
      .option(budgets, "--tokens-per-batch", "N", "Budget to try; may be given several times. Else 1024 to 65536.")
      .choice(options.reading.format, "--format", {"auto", "fasta", "csv", "tsv"},
              "Format of all files, as in prepare.")
      .option(options.reading.table.sequence_column, "--sequence-column", "NAME", "As in prepare.")
      .option(options.reading.table.id_column, "--id-column", "NAME", "As in prepare.")
      .option(options.reading.table.target_column, "--target-column", "NAME", "As in prepare.")
      .choice(options.reading.table.split, "--split", {"train", "valid", "test"}, "As in prepare.")
      .flag(json, "--json", "Print one JSON object on standard output.")
      .example("esmtrain data inspect uniref50", "a prepared folder")
      .example("esmtrain data inspect mine.csv --max-tokens 512 --tokens-per-batch 8192", "one budget");
  if (!args.parse(argc, argv)) return 0;
  if (options.max_tokens < 3) fail<ConfigError>("--max-tokens must be at least 3, found {}", options.max_tokens);
  if (!budgets.empty()) options.budgets.clear();
  for (const std::string& budget : budgets) {
    int64_t tokens = 0;
    const auto [end, error] = std::from_chars(budget.data(), budget.data() + budget.size(), tokens);
    if (error != std::errc{} || end != budget.data() + budget.size() || tokens < options.max_tokens)
      fail<ConfigError>("--tokens-per-batch must be a whole number of at least --max-tokens {}, found '{}'",
                        options.max_tokens, budget);
    options.budgets.push_back(tokens);
  }
  const StopSignals signals;
  options.reading.progress = progress_shower("reading");
  options.reading.should_stop = [] { return StopSignals::received() != 0; };
  const data::SetReport report = data::inspect(paths, options);
  fmt::print("{}", json ? data::to_json(report) : data::to_text(report));
  return 0;
}

int verify(int argc, char** argv) {
  std::vector<std::string> paths;
  Args args("data verify",
            "Compares every byte of prepared folders with the checksums that were written with them. Exit code 3 when "
            "something is damaged or missing.");
  args.positionals(paths, "FOLDER", "Folders of `data prepare`, or single shards.")
      .example("esmtrain data verify uniref50", "after a copy, or when a disk is in doubt");
  if (!args.parse(argc, argv)) return 0;
  const StopSignals signals;
  int64_t files = 0;
  std::vector<std::string> damaged;
  for (const std::string& path : paths)
    for (const data::FileVerdict& file : data::verify_shards(path, [] { return StopSignals::received() != 0; })) {
      ++files;
      if (!file.problem.empty()) damaged.push_back(file.path);
      if (file.problem.empty())
        fmt::print("ok       {} ({})\n", file.path, human_bytes(file.bytes));
      else
        fmt::print("DAMAGED  {}\n", file.problem);
    }
  if (!damaged.empty()) {
    std::fflush(stdout);
    fail<DataError>("{} of {} files are damaged or missing: {}. Prepare or copy the data again", damaged.size(), files,
                    fmt::join(damaged, ", "));
  }
  fmt::print("all {} files are as they were written\n", files);
  return 0;
}

constexpr std::array kCommands{
    Subcommand{"prepare", "turn FASTA, CSV or TSV files into token shards", prepare},
    Subcommand{"inspect", "say what a data set is made of and how its batches fill", inspect},
    Subcommand{"verify", "compare prepared shards with their checksums", verify},
};

}  // namespace

int cmd_data(int argc, char** argv) {
  return run_subcommand("esmtrain data", "Prepares data sets and looks into them.", kCommands, argc, argv);
}

}  // namespace esm::app
