// A `data prepare` that is killed or stopped anywhere, and the next one that goes on: equal to the byte.
#include "data/unfinished.h"

#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

#include <filesystem>
#include <map>

#include "data_fixture.h"
#include "support/catch.h"

using namespace esm;
using namespace esm::data;
using namespace esm::data::test;
namespace fs = std::filesystem;

namespace {

std::map<std::string, std::string> content(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(folder))
    files[entry.path().filename().string()] = read_text_file(entry.path().string());
  return files;
}

std::string letters(int64_t sequence, int64_t n) {
  std::string text;
  for (int64_t p = 0; p < n; ++p) text += kTokenNames[made_residue(sequence, p)][0];
  return text;
}

// A FASTA text of about `bytes` with everything that is counted: comments anywhere, empty and short records, repairs.
std::string odd_fasta(int64_t first, size_t bytes) {
  std::string text = "; a comment before all\n";
  for (int64_t i = first; text.size() < bytes; ++i) {
    text += fmt::format(">r{} x\n", i % 50 == 0 ? first : i);
    if (i % 11 == 0) text += "; inside\n";
    if (i % 13 != 0) text += letters(i, 20 + i % 700) + (i % 5 == 0 ? "*\n" : "\n");
    if (i % 17 == 0) text += "acdj-1\n; at the end\n";
  }
  return text;
}

std::vector<std::string> inputs(const Scratch& scratch) {
  std::string table = "set,id,sequence,target\n";
  for (int64_t i = 0; i < 4000; ++i)
    table += fmt::format("{},t{},{},{}\n", i % 3 == 0 ? "train" : "test", i, letters(i, 30 + i % 300),
                         i % 19 == 0 ? "" : "1");
  const std::string packed = odd_fasta(200000, 1500000);
  gzFile file = gzopen((scratch / "b.fasta.gz").c_str(), "wb");
  REQUIRE(gzwrite(file, packed.data(), static_cast<unsigned>(packed.size())) > 0);
  gzclose(file);
  return {scratch.write("a.fasta", odd_fasta(0, 2500000)), scratch.write("empty.fasta", "; nothing\n"),
          scratch / "b.fasta.gz", scratch.write("c.csv", table), scratch.write("d.fasta", odd_fasta(400000, 1200000))};
}

// Prepares in another process, which dies at the `calls`-th look at should_stop (0: is told to stop there). Exit code
// 0: it came to the end.
int prepare_elsewhere(const std::vector<std::string>& files, const std::string& folder, PrepareOptions options,
                      int calls, bool dies) {
  const pid_t child = ::fork();
  if (child == 0) {
    options.should_stop = [calls, dies]() mutable {
      if (--calls > 0) return false;
      if (dies) ::_exit(9);  // as SIGKILL: no destructor runs
      return true;
    };
    try {
      prepare(files, folder, options);
    } catch (const PrepareStopped&) {
      ::_exit(8);
    } catch (...) {
      ::_exit(1);
    }
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

}  // namespace

TEST_CASE("killed or stopped anywhere, the next call goes on and the folder is the same to the byte") {
  const Scratch scratch;
  const std::vector<std::string> files = inputs(scratch);
  const PrepareOptions options{.min_length = 25, .max_shard_bytes = 300000};
  const PrepareReport straight = prepare(files, scratch / "straight", options);
  REQUIRE(straight.shards > 10);
  CHECK(straight.comment_lines > 0);
  CHECK(straight.duplicate_ids > 0);
  CHECK(straight.splits.size() == 2);
  const auto expected = content(scratch / "straight");
  int went_on = 0;
  for (const bool dies : {true, false})
    for (int calls = 1;; ++calls) {
      CAPTURE(calls, dies);
      fs::remove_all(scratch / "parent");
      const std::string folder = scratch / "parent/set";
      const int code = prepare_elsewhere(files, folder, options, calls, dies);
      if (code == 0) {
        REQUIRE(calls > 8);
        break;
      }
      REQUIRE(code == (dies ? 9 : 8));
      CHECK_FALSE(fs::exists(folder));
      PrepareOptions second = options;
      int64_t before = 0, total = 0;
      second.progress = [&](const PrepareProgress& p) {
        before = p.records_before;
        total = p.records;
      };
      prepare(files, folder, second);
      REQUIRE(content(folder) == expected);
      CHECK(std::distance(fs::directory_iterator(scratch / "parent"), {}) == 1);
      CHECK(total == straight.records);
      went_on += before > 0 ? 1 : 0;
    }
  CHECK(went_on > 10);
  // Many deaths in a row.
  fs::remove_all(scratch / "parent");
  int deaths = 0;
  while (prepare_elsewhere(files, scratch / "parent/set", options, 2 + ++deaths, true) != 0) REQUIRE(deaths < 100);
  CHECK(content(scratch / "parent/set") == expected);
}

TEST_CASE("what is left of other files, other settings or a damaged shard is not gone on from") {
  const Scratch scratch;
  const std::vector<std::string> files = inputs(scratch);
  const PrepareOptions options{.max_shard_bytes = 300000};
  const auto records_before = [&](const PrepareOptions& with) {
    PrepareOptions second = with;
    int64_t before = 0;
    second.progress = [&](const PrepareProgress& p) { before = p.records_before; };
    prepare(files, scratch / "parent/set", second);
    return before;
  };
  const auto begin = [&] {
    fs::remove_all(scratch / "parent");
    REQUIRE(prepare_elsewhere(files, scratch / "parent/set", options, 4, true) == 9);
    return fs::directory_iterator(scratch / "parent")->path().string();
  };
  begin();
  CHECK(records_before(options) > 0);
  begin();
  PrepareOptions other = options;
  other.min_length = 2;
  CHECK(records_before(other) == 0);
  begin();
  scratch.write("a.fasta", odd_fasta(1, 2500000));
  CHECK(records_before(options) == 0);
  const std::string left = begin();
  const std::string shard = left + "/shard-00001.h5", bytes = read_text_file(shard);
  write_file_atomically(shard, bytes.substr(0, bytes.size() / 2));
  CHECK(records_before(options) == 0);
  // Every cut or changed byte of the note is noticed.
  const std::string again = begin(), text = read_text_file(again + "/unfinished.txt");
  const std::string key = unfinished_key(files, options);
  REQUIRE(read_unfinished(again, key).has_value());
  for (size_t at = 0; at < text.size(); at += 7) {
    std::string changed = text;
    changed[at] = static_cast<char>(changed[at] ^ 2);
    write_file_atomically(again + "/unfinished.txt", changed);
    CHECK_FALSE(read_unfinished(again, key).has_value());
    write_file_atomically(again + "/unfinished.txt", text.substr(0, at));
    CHECK_FALSE(read_unfinished(again, key).has_value());
  }
}

TEST_CASE("progress says rate and time left") {
  PrepareProgress p{.bytes_done = 600 << 20,
                    .bytes_total = 1000 << 20,
                    .records = 3000,
                    .bytes_before = 200 << 20,
                    .records_before = 1000,
                    .seconds = 4};
  CHECK(progress_text(p) == "60 % of 1000.0 MiB, 3.00k records, 500 records/s, 100.0 MiB/s, 4 s left");
  p.bytes_total = 0;
  CHECK(progress_text(p) == "600.0 MiB, 3.00k records, 500 records/s, 100.0 MiB/s");
}
