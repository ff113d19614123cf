// The disk is full at an exact byte of what a save, an export or a preparation writes. Through the built binary.
#include "support/catch.h"
#include "tests/cli/odd_disk.h"

using namespace esm;
using namespace esm::test;
namespace fs = std::filesystem;

namespace {

constexpr char kFull[] = "the disk (or the quota) is full (No space left on device)";

int64_t bytes_in(const std::string& folder) {
  int64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(folder)) bytes += static_cast<int64_t>(entry.file_size());
  return bytes;
}

}  // namespace

TEST_CASE("a save that meets a full disk at any of 30 bytes, or at the sync: one line, nothing lost, nothing left") {
  const ScratchFolder scratch("esm-full");
  const std::string config = tiny_config(scratch.path(), "checkpoint: {every_steps: 4, keep_last: 3}\n");
  const auto in = [&](const std::string& folder, std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--run.dir", folder, "--resume", "auto", "--train.max_steps=12", "--train.threads=1"});
    return train_command(config, flags);
  };
  const std::string straight = scratch.path() + "/straight";
  REQUIRE(run(in(straight, {}), in_repository()).exit_code == 0);
  // A save is as large but for the digits of times and the name of its folder, in the manifest, which is written last.
  const int64_t whole = bytes_in(straight + "/checkpoints/step-000000008") - 100;
  REQUIRE(whole > 30'000);

  constexpr int kOffsets = 30;
  for (int i = 0; i <= kOffsets; ++i) {
    const bool at_sync = i == kOffsets, stop = i % 2 == 1;
    const std::string folder = fmt::format("{}/run-{}", scratch.path(), i);
    const ProcessOptions disk = on_odd_disk(in_repository(), "/step-000000008.tmp-", at_sync ? "SYNC" : "BYTES",
                                            at_sync ? 1 : i * (whole - 1) / (kOffsets - 1));
    const Finished full = run(
        in(folder, stop ? std::vector<std::string>{"--checkpoint.on_error=stop"} : std::vector<std::string>{}), disk);
    INFO(i << " of " << kOffsets << "\n" << full.all());
    CHECK(full.exit_code == (stop ? 6 : 0));
    CHECK(lines_with(full.err, kFull) == 1);
    CHECK(lines_with(full.err, "the checkpoint of step 8 was not saved: cannot ") == 1);
    CHECK(lines_with(full.err, "error: ") == 1);
    CHECK(tensor_hashes(folder, 4) == tensor_hashes(straight, 4));
    CHECK_FALSE(fs::exists(folder + "/checkpoints/step-000000008"));
    CHECK(names_with(folder + "/checkpoints", ".tmp-").empty());
    if (stop) {
      const Finished resumed = run(in(folder, {}), in_repository());
      INFO(resumed.all());
      CHECK(resumed.exit_code == 0);
      CHECK_THAT(resumed.err, ContainsSubstring("resumed at step 4 from"));
      CHECK(tensor_hashes(folder, 8) == tensor_hashes(straight, 8));
      CHECK(names_with(folder + "/checkpoints", ".tmp-").empty());
    }
    CHECK(tensor_hashes(folder, 12) == tensor_hashes(straight, 12));
    CHECK(metric_rows(folder) == metric_rows(straight));
  }
}

TEST_CASE("rows of metrics that meet a full disk wait, and training goes on") {
  const ScratchFolder scratch("esm-full");
  const std::string config = tiny_config(scratch.path());
  const auto in = [&](const std::string& folder) {
    return train_command(config, {"--run.dir", folder, "--resume", "auto", "--train.max_steps=12", "--run.csv=true"});
  };
  const std::string straight = scratch.path() + "/straight", folder = scratch.path() + "/full";
  REQUIRE(run(in(straight), in_repository()).exit_code == 0);
  const Finished full = run(in(folder), on_odd_disk(in_repository(), "/metrics.jsonl", "BYTES", 900));
  INFO(full.all());
  CHECK(full.exit_code == 0);
  CHECK(lines_with(full.err, "rows of metrics wait until they can be written: cannot write") == 1);
  CHECK(lines_with(full.err, "the last rows of metrics were never written") == 1);
  CHECK(tensor_hashes(folder, 12) == tensor_hashes(straight, 12));
  const std::string written = read_text_file(folder + "/metrics.jsonl");
  CHECK(written.size() > 500);
  CHECK(written.size() <= 900);
  CHECK(written.ends_with("}\n"));
  const auto lines = [](const std::string& text) { return std::count(text.begin(), text.end(), '\n'); };
  CHECK(lines(read_text_file(folder + "/metrics.csv")) == lines(read_text_file(straight + "/metrics.csv")));
}

TEST_CASE("an export and a preparation that meet a full disk: exit code, one line, nothing left") {
  const ScratchFolder scratch("esm-full");
  const std::string golden = "tests/data/golden/hf_d16", proteins = "tests/data/protein/tiny_train.fasta";
  const auto commands = [&](const std::string& out) {
    return std::vector<std::vector<std::string>>{{ESM_EXE, "convert", golden, out, "--to", "hf"},
                                                 {ESM_EXE, "convert", golden, out, "--to", "native"},
                                                 {ESM_EXE, "data", "prepare", proteins, "--out", out}};
  };
  for (size_t c = 0; c < 3; ++c) {
    const std::string sound = fmt::format("{}/sound-{}", scratch.path(), c);
    REQUIRE(run(commands(sound)[c], in_repository()).exit_code == 0);
    const int64_t whole = bytes_in(sound);
    // The last bytes of a shard are not written last, so the report stands for the end of a preparation.
    const std::string last = c == 2 ? "/report.json" : "/out.tmp-";
    for (const auto& [path, at] : {std::pair<std::string, int64_t>("/out.tmp-", 0),
                                   {"/out.tmp-", whole / 2},
                                   {last, c == 2 ? 100 : whole - 1}}) {
      const ScratchFolder place("esm-full-out");
      const Finished full = run(commands(place.path() + "/out")[c], on_odd_disk(in_repository(), path, "BYTES", at));
      INFO(c << ", " << at << " of " << whole << "\n" << full.all());
      CHECK(full.exit_code == (c == 2 ? 3 : 6));
      CHECK(lines_with(full.err, "error: ") == 1);
      CHECK(lines_with(full.err, "No space left on device") == 1);
      CHECK(fs::is_empty(place.path()));
    }
  }
}
