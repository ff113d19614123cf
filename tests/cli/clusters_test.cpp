// Training from clusters through the built program: FASTA and prepared shards, exact resume, mixtures, errors.
#include <algorithm>

#include "support/catch.h"
#include "tests/cli/training.h"

using namespace esm;
using namespace esm::test;

namespace {

const std::string kFasta = "tests/data/protein/tiny_train.fasta";

/// A table of clusters of five for the ids of `fasta`, without every eleventh, and a member that is nowhere.
std::string cluster_table(const std::string& folder) {
  std::istringstream lines(read_text_file(std::string(ESM_SOURCE_DIR) + "/" + kFasta));
  std::string table = "cluster\tmember\n";
  int n = 0;
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with('>') && ++n % 11 != 0)
      table += fmt::format("c{}\t{}\n", n / 5, line.substr(1, line.find_first_of(" \t") - 1));
  const std::string path = folder + "/clusters.tsv";
  write_file_atomically(path, table + "c3\tnobody\n");
  return path;
}

struct Run {
  std::string log;
  std::map<std::string, std::string> rows;
};

Run train(const std::string& folder, const std::vector<std::string>& flags) {
  std::vector<std::string> all{"--train.micro_batches=2"};
  all.insert(all.end(), flags.begin(), flags.end());
  const Finished done =
      run(train_command(tiny_config(folder, "eval: {every_steps: 4}\ncheckpoint: {every_steps: 4}\n"), all),
          in_repository());
  INFO(done.all());
  REQUIRE(done.exit_code == 0);
  return {done.err, metric_rows(folder + "/run")};
}

}  // namespace

TEST_CASE("training from clusters resumes bit for bit, from FASTA as from prepared shards, and in a mixture") {
  const ScratchFolder tables("esm-clusters");
  const std::string table = cluster_table(tables.path()), shards = tables.path() + "/set";
  REQUIRE(run({ESM_EXE, "data", "prepare", kFasta, "--out", shards}, in_repository()).exit_code == 0);
  const auto check = [&](const std::vector<std::string>& flags) {
    const ScratchFolder a("esm-straight"), b("esm-resumed");
    const auto with = [&](std::vector<std::string> more) {
      more.insert(more.end(), flags.begin(), flags.end());
      return more;
    };
    const Run straight = train(a.path(), with({"--train.max_steps=12"}));
    train(b.path(), with({"--train.max_steps=7", "--schedule.total_steps=12"}));
    Run resumed = train(b.path(), with({"--train.max_steps=12", "--resume=auto"}));
    resumed.rows.erase("valid 7");
    CHECK(straight.rows == resumed.rows);
    CHECK(tensor_hashes(a.path() + "/run", 12) == tensor_hashes(b.path() + "/run", 12));
    return straight;
  };
  const Run fasta = check({"--data.clusters", table});
  CHECK_THAT(fasta.log, ContainsSubstring("23 sequences in no cluster are left out") &&
                            ContainsSubstring("1 members are not in the data") &&
                            ContainsSubstring("an epoch draws one member of each of 52 clusters"));
  const Run prepared = check({"--data.clusters", table, "--data.train", shards, "--data.loader_threads=2"});
  CHECK(prepared.rows == fasta.rows);
  const Run mixed = check({"--data.train={a: " + shards + ", b: tests/data/protein/tiny_valid.fasta}",
                           "--data.weights={a: 2, b: 1}", "--data.clusters.a", table});
  CHECK_THAT(mixed.log, ContainsSubstring("a: 66.67 %") && ContainsSubstring("of each of 52 clusters"));
}

TEST_CASE("clusters that cannot be drawn from are refused") {
  const ScratchFolder scratch("esm-clusters");
  const std::string table = cluster_table(scratch.path()), broken = scratch.path() + "/broken.csv";
  write_file_atomically(broken, "cluster,member\na,b\nc\n");
  const auto check = [&](const std::vector<std::string>& flags, int code, const std::string& expected) {
    const Finished done = run(train_command(tiny_config(scratch.path()), flags), in_repository());
    INFO(done.all());
    CHECK(done.exit_code == code);
    CHECK_THAT(done.err, ContainsSubstring(expected));
  };
  check({"--data.clusters", broken}, 3, "broken.csv:3: column 2: the row has 1 fields, the header has 2");
  check({"--data.clusters", scratch.path() + "/none.tsv"}, 3, "none.tsv");
  check({"--data.clusters={mine: " + table + "}"}, 2,
        "data.clusters: there is no set 'mine' in data.train, only train");
  check({"--data.clusters", table, "--data.overlong=window"}, 2, "data.clusters: overlong window");
  check({"--data.clusters={a: " + table + "}", "--data.train={a: " + kFasta + ", b: " + kFasta + "}"}, 2,
        "without data.weights the 2 sets of data.train are one");
}
