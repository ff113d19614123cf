// FASTA to shards: counts for every odd file, atomic output, the cache.
#include "data/prepare.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "data/cache_lock.h"
#include "data/clusters.h"
#include "data/shard_folder.h"
#include "data/tokenizer.h"
#include "data/verify.h"
#include "data_fixture.h"
#include "support/catch.h"

using namespace esm;
using namespace esm::data;
using namespace esm::data::test;
namespace fs = std::filesystem;

namespace {

PrepareReport prepare_into(const Scratch& scratch, const std::string& input, const std::string& folder = "out") {
  return prepare({input}, scratch / folder, {});
}

int64_t letters(const PrepareReport& report, Repair kind) { return report.repaired_letters[static_cast<size_t>(kind)]; }
int64_t skipped(const PrepareReport& report, Skip kind) { return report.skipped[static_cast<size_t>(kind)]; }

std::vector<std::vector<uint8_t>> sequences(const std::string& folder) {
  const Dataset set = open_dataset({folder}, {});
  std::vector<std::vector<uint8_t>> all;
  for (int64_t i = 0; i < set.size(); ++i) all.push_back(set.tokens(i));
  return all;
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

TEST_CASE("odd FASTA files give the counts of their index") {
  struct Case {
    const char* file;
    int64_t records, usable, residues;
  };
  const Case cases[] = {{"lowercase", 4, 4, 346},
                        {"stops", 4, 3, 225},
                        {"dup_ids", 6, 6, 405},
                        {"dup_sequences", 8, 8, 528},
                        {"lf", 5, 5, 510},
                        {"crlf", 5, 5, 510},
                        {"no_final_newline", 5, 5, 510},
                        {"bom", 5, 5, 510},
                        {"blank_lines", 5, 5, 510},
                        {"empty_records", 6, 3, 182},
                        {"semicolon_comments", 2, 2, 135},
                        {"around_1022", 4, 4, 4108},
                        {"spaced", 2, 2, 301},
                        {"numbered", 1, 1, 180},
                        {"rare_letters", 3, 3, 72},
                        {"tiny_peptides", 8, 8, 16},
                        {"three_records", 3, 3, 180}};
  for (const Case& c : cases) {
    INFO(c.file);
    const Scratch scratch;
    const PrepareReport report = prepare_into(scratch, odd(std::string("fasta/") + c.file + ".fasta"));
    CHECK(report.records == c.records);
    CHECK(report.usable == c.usable);
    CHECK(report.residues == c.residues);
    CHECK(report.usable + report.skipped_records() == report.records);
    const auto json = nlohmann::json::parse(read_text_file(scratch / "out/report.json"));
    CHECK(json.at("records") == c.records);
    CHECK(json.at("usable") == c.usable);
    CHECK(json.at("residues") == c.residues);
  }
}

TEST_CASE("files that differ in form only give the same tokens and ids") {
  const Scratch scratch;
  prepare_into(scratch, odd("fasta/lf.fasta"), "lf");
  const auto expected = sequences(scratch / "lf");
  for (const char* name :
       {"crlf.fasta", "no_final_newline.fasta", "bom.fasta", "blank_lines.fasta", "multi_member.fasta.gz"}) {
    INFO(name);
    prepare_into(scratch, odd(std::string("fasta/") + name), name);
    CHECK(sequences(scratch / name) == expected);
    CHECK(open_dataset({scratch / name}, {}).id(0) == "item_0");
    CHECK(open_dataset({scratch / name}, {}).id(4) == "item_4");
  }
}

TEST_CASE("repairs and skips are counted by kind") {
  const Scratch scratch;
  const PrepareReport lower = prepare_into(scratch, odd("fasta/lowercase.fasta"), "lower");
  const auto tokens = sequences(scratch / "lower");
  CHECK(tokens[0] == tokens[1]);
  CHECK(tokens[0] == tokens[2]);
  CHECK(letters(lower, Repair::kLowerCase) == 75 + 25);
  CHECK(lower.repaired_records[static_cast<size_t>(Repair::kLowerCase)] == 2);

  const PrepareReport stops = prepare_into(scratch, odd("fasta/stops.fasta"), "stops");
  CHECK(letters(stops, Repair::kFinalStop) == 2);
  CHECK(letters(stops, Repair::kInnerStop) == 1);
  CHECK(skipped(stops, Skip::kEmpty) == 1);
  const auto stop_tokens = sequences(scratch / "stops");
  CHECK(stop_tokens[0].size() == 90);
  CHECK(stop_tokens[1].size() == 64);
  CHECK(stop_tokens[2].at(30) == kUnknownToken);

  const PrepareReport empty = prepare_into(scratch, odd("fasta/empty_records.fasta"), "empty");
  CHECK(skipped(empty, Skip::kEmpty) == 2);
  CHECK(skipped(empty, Skip::kOnlyGaps) == 1);
  CHECK(prepare_into(scratch, odd("fasta/semicolon_comments.fasta"), "comments").comment_lines == 4);
  const PrepareReport ids = prepare_into(scratch, odd("fasta/dup_ids.fasta"), "ids");
  CHECK(ids.duplicate_ids > 0);
  CHECK(ids.duplicate_sequences == 0);
  const PrepareReport same = prepare_into(scratch, odd("fasta/dup_sequences.fasta"), "same");
  CHECK(same.duplicate_sequences == 7);
  CHECK(same.duplicate_ids == 0);
  CHECK(same.lengths.deviation == 0);
  CHECK(letters(prepare_into(scratch, odd("fasta/numbered.fasta"), "numbered"), Repair::kDigit) == 6);
  CHECK(letters(prepare_into(scratch, odd("fasta/rare_letters.fasta"), "rare"), Repair::kLetterJ) == 2);
  CHECK_THAT(read_text_file(scratch / "rare/report.txt"), ContainsSubstring("2 in 1 records: J, now <unk>"));
}

TEST_CASE("inputs that cannot be used are refused by name and leave nothing behind") {
  const Scratch scratch;
  const auto refused = [&](const std::string& input, const std::string& words) {
    INFO(input);
    CHECK_THROWS_WITH(prepare({input}, scratch / "parent/out", {}),
                      ContainsSubstring(fs::path(input).filename()) && ContainsSubstring(words));
    CHECK((!fs::exists(scratch / "parent") || names_in(scratch / "parent").empty()));
  };
  refused(odd("fasta/truncated.fasta.gz"), "cut");
  refused(scratch.write("x.parquet", "PAR1"), "parquet is not read");
  refused(odd("csv/labels_short.fasta"), "labels");
  refused(odd("hdf5/foreign_schema.h5"), "HDF5");
  refused(odd("hdf5/zero_length.h5"), "no usable sequence");
  refused(scratch.write("gaps.fasta", ">a\n--\n>b\n*\n"), "2 records");
  refused(scratch / "no_such.fasta", "cannot open");
  refused(scratch / "no_*.fasta", "no file matches");
  CHECK(prepare_into(scratch, odd("csv/labels_sequences.fasta")).residues == 168);
}

TEST_CASE("a record without end is refused as soon as it is too long for a protein") {
  const Scratch scratch;
  const std::string longest = ">small\nMKV\n>huge\n" + std::string(size_t{1} << 26, 'A');
  scratch.write("most.fasta", longest + "\n>next\nMK\n");
  // What comes behind is not looked at any more: there would be a NUL byte.
  scratch.write("more.fasta", longest + std::string(size_t{4} << 20, 'A') + std::string(1, '\0'));
  CHECK(prepare({scratch / "most.fasta"}, scratch / "most", {}).lengths.longest == int64_t{1} << 26);
  CHECK_THROWS_WITH(
      prepare({scratch / "more.fasta"}, scratch / "more", {}),
      ContainsSubstring("more.fasta: the sequence 'huge' has more than 67,108,864 residues: this is no protein"));
  CHECK_FALSE(fs::exists(scratch / "more"));
}

TEST_CASE("an input that breaks off late leaves no folder, though shards were written already") {
  const Scratch scratch;
  std::string text;
  for (int i = 0; i < 3000; ++i) text += fmt::format(">r{}\n{}\n", i, std::string(500, 'A'));
  scratch.write("good.fasta", text);
  PrepareOptions options;
  options.max_shard_bytes = 100000;
  CHECK_THROWS_AS(prepare({scratch / "good.fasta", odd("fasta/truncated.fasta.gz")}, scratch / "out", options),
                  DataError);
  CHECK(names_in(scratch / "").size() == 1);
  int calls = 0;
  options.should_stop = [&] { return ++calls > 1; };
  // What was told to stop keeps its shards for the next one, beside the place of the folder.
  CHECK_THROWS_WITH(prepare({scratch / "good.fasta"}, scratch / "out", options), ContainsSubstring("shards are kept"));
  CHECK_FALSE(fs::exists(scratch / "out"));
}

TEST_CASE("comparing with what is there already can be stopped within a file") {
  const Scratch scratch;
  scratch.write("good.fasta", ">a\n" + std::string(5'000'000, 'A') + "\n");
  prepare({scratch / "good.fasta"}, scratch / "out", {});
  PrepareOptions options;
  int calls = 0;
  options.should_stop = [&] { return ++calls > 3; };
  CHECK_THROWS_AS(prepare({scratch / "good.fasta"}, scratch / "out", options), PrepareStopped);
  CHECK(calls == 4);
  calls = 0;
  CHECK_THROWS_AS(verify_shards(scratch / "out", options.should_stop), PrepareStopped);
  CHECK(prepare({scratch / "good.fasta"}, scratch / "out", {}).already_there);
}

TEST_CASE("many shards hold the same sequences as one, in the same order") {
  const Scratch scratch;
  prepare({test_data("protein/tiny_train.fasta")}, scratch / "one", {});
  PrepareOptions options;
  options.max_shard_bytes = 1000;
  int64_t last_done = 0, last_total = 0, ends = 0;
  options.progress = [&](const PrepareProgress& p) {
    ends += p.finished ? 1 : 0;
    last_done = p.bytes_done;
    last_total = p.bytes_total;
  };
  const PrepareReport many = prepare({test_data("protein/tiny_train.fasta")}, scratch / "many", options);
  CHECK(many.shards > 50);
  CHECK(many.residues == 57488);
  CHECK(many.usable == 256);
  CHECK(many.lengths.shortest == 46);
  CHECK(many.lengths.longest == 400);
  CHECK(last_done == last_total);
  CHECK(ends == 1);
  CHECK(sequences(scratch / "many") == sequences(scratch / "one"));
  CHECK(open_dataset({scratch / "many"}, {}).id(200) == open_dataset({scratch / "one"}, {}).id(200));
}

TEST_CASE("records below the minimum are skipped and counted") {
  const Scratch scratch;
  PrepareOptions options;
  options.min_length = 3;
  const PrepareReport report = prepare({odd("fasta/tiny_peptides.fasta")}, scratch / "out", options);
  CHECK(report.usable == 3);
  CHECK(skipped(report, Skip::kTooShort) == 5);
}

TEST_CASE("an existing folder is kept, found to be the same, or replaced only by force") {
  const Scratch scratch;
  prepare_into(scratch, odd("fasta/lf.fasta"));
  CHECK(prepare_into(scratch, odd("fasta/lf.fasta")).already_there);
  CHECK_THROWS_WITH(prepare_into(scratch, odd("fasta/spaced.fasta")), ContainsSubstring("--force"));
  CHECK(open_dataset({scratch / "out"}, {}).residues() == 510);
  PrepareOptions options;
  options.force = true;
  CHECK_FALSE(prepare({odd("fasta/spaced.fasta")}, (scratch / "out") + "/", options).already_there);
  CHECK(open_dataset({scratch / "out"}, {}).residues() == 301);
  CHECK(names_in(scratch / "") == std::vector<std::string>{"out"});
  scratch.write("out/thesis.txt", "x");
  CHECK_THROWS_WITH(prepare({odd("fasta/lf.fasta")}, scratch / "out", options), ContainsSubstring("other things"));
  CHECK(fs::exists(scratch / "out/thesis.txt"));
  fs::create_directory(scratch / "empty");
  CHECK(prepare_into(scratch, odd("fasta/lf.fasta"), "empty").usable == 5);
}

TEST_CASE("leftovers of a killed process are removed by the next one") {
  const Scratch scratch;
  const pid_t child = ::fork();
  if (child == 0) {
    auto* leaked = new FolderInProgress(
        scratch / "out", [](const std::string&) { return false; });  // as after SIGKILL: no destructor runs
    ::_exit(leaked->path().empty() ? 1 : 0);
  }
  siginfo_t info{};
  REQUIRE(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT) == 0);  // dead, but still in the table
  REQUIRE(names_in(scratch / "").size() == 1);
  prepare_into(scratch, odd("fasta/lf.fasta"));
  CHECK(names_in(scratch / "") == std::vector<std::string>{"out"});
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
}

TEST_CASE("FASTA is prepared once into the cache, under its content and not its name") {
  const Scratch scratch;
  DatasetOptions options;
  options.cache_dir = scratch / "cache";
  const std::string text = read_text_file(odd("fasta/lf.fasta"));
  scratch.write("a.fasta", text);
  const Dataset first = open_dataset({scratch / "a.fasta"}, options);
  CHECK(first.residues() == 510);
  CHECK_THAT(first.report_text(), ContainsSubstring("5 records: 5 usable"));
  const auto entries = [&] {
    auto names = names_in(scratch / "cache");
    std::erase_if(names, [](const std::string& name) { return name.ends_with(".lock"); });
    return names;
  };
  REQUIRE(entries().size() == 1);
  const auto made = fs::last_write_time((scratch / "cache") + "/" + entries()[0] + "/shard-00000.h5");
  scratch.write("b.fasta", text);
  CHECK(open_dataset({scratch / "b.fasta"}, options).fingerprint() == first.fingerprint());
  CHECK(entries().size() == 1);
  CHECK(fs::last_write_time((scratch / "cache") + "/" + entries()[0] + "/shard-00000.h5") == made);
  scratch.write("a.fasta", text + "MKV\n");
  const Dataset changed = open_dataset({scratch / "a.fasta"}, options);
  CHECK(changed.residues() == 513);
  CHECK(changed.fingerprint() != first.fingerprint());
  CHECK(entries().size() == 2);
  // A damaged entry is made again.
  scratch.write("cache/" + entries()[0] + "/shard-00000.h5", "damaged");
  scratch.write("cache/" + entries()[1] + "/shard-00000.h5", "damaged");
  CHECK(open_dataset({scratch / "b.fasta"}, options).fingerprint() == first.fingerprint());
  // So is one that has lost its only shard, but not one with things of others in it.
  const std::string entry = (scratch / "cache") + "/" + inputs_hash({scratch / "b.fasta"}, {});
  fs::remove(entry + "/shard-00000.h5");
  REQUIRE(fs::exists(entry + "/report.json"));
  CHECK(open_dataset({scratch / "b.fasta"}, options).fingerprint() == first.fingerprint());
  CHECK(names_in(entry) == std::vector<std::string>{"report.json", "report.txt", "shard-00000.h5"});
  fs::remove(entry + "/shard-00000.h5");
  write_file_atomically(entry + "/thesis.txt", "x");
  CHECK_THROWS_WITH(open_dataset({scratch / "b.fasta"}, options), ContainsSubstring("other things"));
  CHECK(fs::exists(entry + "/thesis.txt"));
}

TEST_CASE("two processes that prepare the same FASTA at once both get it") {
  const Scratch scratch;
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      int code = 1;
      try {
        DatasetOptions options;
        options.cache_dir = scratch / "cache";
        code = open_dataset({test_data("protein/tiny_train.fasta")}, options).residues() == 57488 ? 0 : 2;
      } catch (...) {
        code = 3;
      }
      ::_exit(code);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
  }
}

TEST_CASE("who waits for another process that prepares the same hears a wish to stop") {
  const Scratch scratch;
  const std::string path = scratch / "thing";
  int asked = 0;
  const auto stop_later = [&asked] { return ++asked == 2; };
  {
    const FileDescriptor held = cache_lock(path, [] { return true; });  // not asked: nobody has it
    REQUIRE(held.valid());
    CHECK_THROWS_AS(cache_lock(path, stop_later), PrepareStopped);
    CHECK(asked == 2);
  }
  CHECK(cache_lock(path, {}).valid());

  // The same from above.
  DatasetOptions options;
  options.cache_dir = scratch / "cache";
  const std::string input = odd("fasta/lf.fasta"), table = scratch.write("t.tsv", "cluster\tmember\na\titem_0\n");
  const Dataset set = open_dataset({input}, options);
  open_clusters({table}, set, options);
  std::vector<FileDescriptor> locks;
  std::vector<std::string> made;
  for (const std::string& name : names_in(scratch / "cache"))
    if (name.ends_with(".lock"))
      locks.push_back(cache_lock((scratch / "cache") + "/" + name.substr(0, name.size() - 5), {}));
    else
      made.push_back((scratch / "cache") + "/" + name);
  REQUIRE(locks.size() == 2);
  REQUIRE(made.size() == 2);
  for (const std::string& name : made) fs::remove_all(name);
  options.should_stop = [calls = 0]() mutable { return ++calls > 2; };  // not while the inputs are read
  CHECK_THROWS_WITH(open_dataset({input}, options), ContainsSubstring("another process"));
  CHECK_THROWS_WITH(open_clusters({table}, set, options), ContainsSubstring("another process"));
  locks.clear();
  options.should_stop = {};
  CHECK(open_dataset({input}, options).fingerprint() == set.fingerprint());
  CHECK(open_clusters({table}, set, options)->size() == 1);
}

TEST_CASE("a data set takes folders, shards and FASTA in any mixture and order") {
  const Scratch scratch;
  DatasetOptions options;
  options.cache_dir = scratch / "cache";
  options.verify = Verify::kOpen;
  prepare_into(scratch, odd("fasta/lf.fasta"));
  const Dataset set = open_dataset(
      {odd("fasta/spaced.fasta"), scratch / "out", odd("fasta/tiny_*.fasta"), scratch / "out/shard-00000.h5"}, options);
  CHECK(set.size() == 2 + 5 + 8 + 5);
  CHECK(set.residues() == 301 + 510 + 16 + 510);
  CHECK(set.id(0) == "sp_1");
  CHECK(set.id(2) == "item_0");
  CHECK(set.id(7) == "p_0");
  CHECK(set.tokens(2) == set.tokens(15));
  CHECK(open_all({{"b", {odd("fasta/lf.fasta")}}, {"a", {odd("fasta/spaced.fasta")}}}, options).id(0) == "sp_1");
  CHECK_THROWS_WITH(open_dataset({scratch / "cache"}, options), ContainsSubstring("without shards"));
  CHECK_THROWS_WITH(open_dataset({odd("fasta/lf.fasta")}, {}), ContainsSubstring("lf.fasta"));
}
