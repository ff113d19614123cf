// esmtrain data prepare
#include <unistd.h>

#include <algorithm>
#include <array>
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
#include "data/prepare.h"

namespace esm::app {
namespace {

std::string progress_line(const data::PrepareProgress& p) {
  const double rate = static_cast<double>(p.bytes_done) / std::max(p.seconds, 1e-9);
  const std::string done = fmt::format("{} records, {}/s", human_count(static_cast<double>(p.records)),
                                       human_bytes(static_cast<int64_t>(rate)));
  if (p.bytes_total == 0) return fmt::format("preparing: {}, {}", human_bytes(p.bytes_done), done);
  const int64_t left = std::max<int64_t>(p.bytes_total - p.bytes_done, 0);
  return fmt::format("preparing: {:3.0f} % of {}, {}, {} left",
                     100 * static_cast<double>(p.bytes_done) / static_cast<double>(p.bytes_total),
                     human_bytes(p.bytes_total), done, human_duration(static_cast<double>(left) / std::max(rate, 1.0)));
}

/// On a terminal one line that renews itself, elsewhere a line of the log every ten seconds.
data::ProgressCallback progress_shower() {
  if (::isatty(STDERR_FILENO) == 1)
    return [](const data::PrepareProgress& p) {
      fmt::print(stderr, "\r\033[K{}{}", progress_line(p), p.finished ? "\n" : "");
    };
  return [next_s = 10.0](const data::PrepareProgress& p) mutable {
    if (p.seconds < next_s) return;
    next_s = p.seconds + 10.0;
    log::info("{}", progress_line(p));
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
  options.progress = progress_shower();
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

constexpr std::array kCommands{
    Subcommand{"prepare", "turn FASTA, CSV or TSV files into token shards", prepare},
};

}  // namespace

int cmd_data(int argc, char** argv) {
  return run_subcommand("esmtrain data", "Prepares data sets.", kCommands, argc, argv);
}

}  // namespace esm::app
