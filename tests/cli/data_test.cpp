// `esmtrain data prepare` through the built program: exit codes, messages, interruption.
#include <fcntl.h>
#include <sys/stat.h>

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "cli/process.h"
#include "support/catch.h"

using esm::read_text_file;
using esm::ScratchFolder;
using esm::write_file_atomically;
using esm::test::Finished;
namespace fs = std::filesystem;

namespace {

const std::string kData = ESM_SOURCE_DIR "/tests/data/";

Finished prepare(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {ESM_EXE, "data", "prepare"});
  return esm::test::run(std::move(arguments));
}

}  // namespace

TEST_CASE("data prepare says what it did and writes it down") {
  const ScratchFolder scratch("esm-cli-data");
  const std::string out = scratch.path() + "/set";
  Finished done = prepare({kData + "oddities/fasta/stops.fasta", kData + "oddities/fasta/low*.fasta", "--out", out});
  INFO(done.all());
  CHECK(done.exit_code == 0);
  CHECK_THAT(done.out, ContainsSubstring("8 records: 7 usable") && ContainsSubstring("1 skipped"));
  CHECK_THAT(done.out, ContainsSubstring("(inner_stop)") && ContainsSubstring("(lower_case)"));
  const auto report = nlohmann::json::parse(esm::read_text_file(out + "/report.json"));
  CHECK(report.at("records") == 8);
  CHECK(report.at("usable") == 7);
  CHECK(report.at("residues") == 225 + 346);
  CHECK(report.at("repaired").at("inner_stop") == 1);
  CHECK(report.at("skipped").at("empty") == 1);
  CHECK(report.at("duplicates").at("sequences") == 2);
  done = prepare({kData + "oddities/fasta/stops.fasta", kData + "oddities/fasta/low*.fasta", "--out", out});
  CHECK(done.exit_code == 0);
  CHECK_THAT(done.out, ContainsSubstring("already") && ContainsSubstring("8 records"));
  done = prepare({kData + "oddities/fasta/lf.fasta", "--out", out});
  CHECK(done.exit_code == 3);
  CHECK_THAT(done.err, ContainsSubstring("--force"));
  CHECK(prepare({kData + "oddities/fasta/lf.fasta", "--out", out, "--force"}).exit_code == 0);
}

TEST_CASE("data prepare refuses bad input with exit code 3, one line, and no folder") {
  const ScratchFolder scratch("esm-cli-data");
  for (const char* name : {"fasta/truncated.fasta.gz", "csv/labels_short.fasta", "hdf5/not_hdf5.h5",
                           "hdf5/zero_length.h5", "fasta", "fasta/missing.fasta", "fasta/missing*"}) {
    const Finished done = prepare({kData + "oddities/" + name, "--out", scratch.path() + "/set"});
    INFO(done.all());
    CHECK(done.exit_code == 3);
    CHECK_THAT(done.err, ContainsSubstring(name));
    CHECK(std::count(done.err.begin(), done.err.end(), '\n') == 1);
    CHECK(fs::is_empty(scratch.path()));
  }
  CHECK(prepare({kData + "oddities/fasta/lf.fasta"}).exit_code == 2);
  CHECK(prepare({kData + "oddities/fasta/lf.fasta", "--out", scratch.path() + "/set", "--min-length", "0"}).exit_code ==
        2);
}

TEST_CASE("what a set without a usable sequence, or without splits, says") {
  const ScratchFolder scratch("esm-cli-data");
  const std::string out = scratch.path() + "/set";
  const auto error = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--out", out});
    const Finished done = prepare(arguments);
    CHECK(done.exit_code == 3);
    CHECK_FALSE(fs::exists(out));
    return done.err;
  };
  const std::string table = scratch.path() + "/t.csv", empty = scratch.path() + "/e.fasta";
  write_file_atomically(table, "sequence,set,validation\nMKV,train,1\nMKVA,train,0\nMK,test,\nMKVL,train,\n");
  write_file_atomically(empty, "");
  CHECK_THAT(error({table, "--min-length", "9"}),
             ContainsSubstring("4 records, all skipped: 4 shorter than the minimum"));
  CHECK_THAT(error({empty}), ContainsSubstring("e.fasta: there is no record in it"));
  CHECK_THAT(error({kData + "oddities/fasta/lf.fasta", "--split", "valid"}),
             ContainsSubstring("only tables (CSV, TSV) have splits"));
  const Finished all = prepare({table, "--out", out});
  CHECK_THAT(all.out, ContainsSubstring("median 3.5") && ContainsSubstring("split train: 2 records") &&
                          ContainsSubstring("split valid: 1 records") &&
                          ContainsSubstring("these splits are used together"));
  const Finished shards = esm::test::run({ESM_EXE, "data", "inspect", out, "--split", "valid"});
  CHECK(shards.exit_code == 3);
  CHECK_THAT(shards.err, ContainsSubstring("what is prepared has no splits"));
}

TEST_CASE("a damaged shard is made again with --force") {
  const ScratchFolder scratch("esm-cli-data");
  const std::string out = scratch.path() + "/set", shard = out + "/shard-00000.h5";
  const std::string fasta = kData + "protein/tiny_valid.fasta";
  REQUIRE(prepare({fasta, "--out", out}).exit_code == 0);
  const std::string whole = read_text_file(shard);
  std::string damaged = whole;
  damaged[whole.size() / 2] ^= 1;
  write_file_atomically(shard, damaged);
  CHECK(esm::test::run({ESM_EXE, "data", "verify", out}).exit_code == 3);
  CHECK(prepare({fasta, "--out", out, "--force"}).exit_code == 0);
  CHECK(read_text_file(shard) == whole);
  CHECK(esm::test::run({ESM_EXE, "data", "verify", out}).exit_code == 0);
}

TEST_CASE("odd CSV files give the outcome of their index") {
  const ScratchFolder scratch("esm-cli-data");
  const std::string out = scratch.path() + "/set";
  Finished done = prepare({kData + "oddities/csv/plain.csv", "--out", out + "1"});
  INFO(done.all());
  CHECK(done.exit_code == 0);
  CHECK_THAT(done.out, ContainsSubstring("6 records: 6 usable") && ContainsSubstring("from column 'sequence'"));
  CHECK_THAT(done.out, ContainsSubstring("split train: 3") && ContainsSubstring("split valid: 1") &&
                           ContainsSubstring("split test: 2"));
  done = prepare({kData + "oddities/csv/missing_targets.csv", "--out", out + "2"});
  CHECK(done.exit_code == 0);
  CHECK_THAT(done.out, ContainsSubstring("5 records: 2 usable") && ContainsSubstring("(no_target)"));
  done = prepare(
      {kData + "oddities/csv/missing_targets.csv", "--out", out + "3", "--target-column", "none", "--split", "train"});
  CHECK(done.exit_code == 0);
  CHECK_THAT(done.out, ContainsSubstring("5 records: 4 usable") && ContainsSubstring("(other_split)"));
  done = prepare({kData + "oddities/csv/plain.csv", "--out", out + "4", "--sequence-column", "sequnce"});
  CHECK(done.exit_code == 3);
  CHECK_THAT(done.err, ContainsSubstring("plain.csv:1:") && ContainsSubstring("'sequence', 'target', 'set'"));
}

TEST_CASE("a table that is wrong is refused with file, line and column") {
  const ScratchFolder scratch("esm-cli-data");
  const std::string csv = scratch.path() + "/t.csv", parquet = scratch.path() + "/t.parquet";
  esm::write_file_atomically(csv, "id,sequence\na,MKV\nb,\"MK\"V\n");
  esm::write_file_atomically(parquet, "PAR1");
  Finished done = prepare({csv, "--out", scratch.path() + "/set"});
  INFO(done.all());
  CHECK(done.exit_code == 3);
  CHECK_THAT(done.err, ContainsSubstring(csv + ":3: column 7:"));
  done = prepare({parquet, "--out", scratch.path() + "/set"});
  CHECK(done.exit_code == 3);
  CHECK_THAT(done.err, ContainsSubstring("t.parquet") && ContainsSubstring("duckdb"));
  CHECK_FALSE(fs::exists(scratch.path() + "/set"));
}

TEST_CASE("standard input is read, plain or packed, in any format") {
  const ScratchFolder scratch("esm-cli-data");
  const auto piped = [&](const std::string& command, const std::string& options) {
    return esm::test::run({"/bin/sh", "-c", command + " | '" ESM_EXE "' data prepare - " + options});
  };
  const std::string out = scratch.path() + "/set", lf = "'" + kData + "oddities/fasta/lf.fasta'";
  Finished done = piped("cat " + lf, "--out '" + out + "'");
  INFO(done.all());
  CHECK(done.exit_code == 0);
  CHECK_THAT(done.out, ContainsSubstring("5 records: 5 usable with 510 residues"));
  const auto report = nlohmann::json::parse(esm::read_text_file(out + "/report.json"));
  CHECK(report.at("files")[0].at("path") == "standard input");
  // The same bytes from a file are found to be there already; standard input cannot be compared.
  CHECK_THAT(prepare({kData + "oddities/fasta/lf.fasta", "--out", out}).out, ContainsSubstring("already"));
  done = piped("cat " + lf, "--out '" + out + "'");
  CHECK(done.exit_code == 3);
  CHECK_THAT(done.err, ContainsSubstring("standard input") && ContainsSubstring("--force"));
  CHECK(piped("gzip -c " + lf, "--force --out '" + out + "'").exit_code == 0);
  done = piped("printf 'seq,id\\nMKV,a\\nM\"K,b\\n'", "--format csv --out '" + out + "2'");
  CHECK(done.exit_code == 0);
  CHECK_THAT(done.out, ContainsSubstring("2 records: 2 usable") && ContainsSubstring("standard input: sequences from"));
  done = piped("printf 'MKV'", "--out '" + out + "3'");
  CHECK(done.exit_code == 3);
  CHECK_THAT(done.err, ContainsSubstring("standard input:1: not FASTA"));
}

TEST_CASE("data inspect says the same of files, shards and standard input, and writes nothing") {
  const ScratchFolder scratch("esm-cli-data");
  const std::string out = scratch.path() + "/set", file = kData + "protein/tiny_train.fasta";
  REQUIRE(prepare({file, "--out", out}).exit_code == 0);
  const Finished of_file = esm::test::run({ESM_EXE, "data", "inspect", file, "--json"});
  const Finished of_folder = esm::test::run({ESM_EXE, "data", "inspect", out, "--json"});
  const Finished of_pipe =
      esm::test::run({"/bin/sh", "-c", "cat '" + file + "' | '" ESM_EXE "' data inspect - --json"});
  INFO(of_file.all());
  REQUIRE(of_file.exit_code == 0);
  auto one = nlohmann::json::parse(of_file.out), two = nlohmann::json::parse(of_folder.out),
       three = nlohmann::json::parse(of_pipe.out);
  CHECK(one.at("data").at("usable") == 256);
  CHECK(one.at("data").at("residues") == 57488);
  for (auto* json : {&one, &two, &three}) json->at("data").erase("files");
  CHECK(one == two);
  CHECK(one == three);
  const Finished text = esm::test::run({ESM_EXE, "data", "inspect", file, "--max-tokens", "256", "--tokens-per-batch",
                                        "512", "--tokens-per-batch", "4096"});
  INFO(text.all());
  CHECK_THAT(text.out, ContainsSubstring("256 records: 256 usable") && ContainsSubstring("composition") &&
                           ContainsSubstring("longer than max_tokens 256") && ContainsSubstring("4096"));
  CHECK(std::distance(fs::directory_iterator(scratch.path()), {}) == 1);
  CHECK(esm::test::run({ESM_EXE, "data", "inspect", file, "--tokens-per-batch", "1"}).exit_code == 2);
  CHECK(esm::test::run({ESM_EXE, "data", "inspect", kData + "oddities/fasta/truncated.fasta.gz"}).exit_code == 3);
}

TEST_CASE("data verify names every damaged or missing file and ends with exit code 3") {
  const ScratchFolder scratch("esm-cli-data");
  const std::string out = scratch.path() + "/set";
  REQUIRE(prepare({kData + "oddities/fasta/lf.fasta", "--out", out}).exit_code == 0);
  const auto verify = [&] { return esm::test::run({ESM_EXE, "data", "verify", out}); };
  Finished done = verify();
  INFO(done.all());
  CHECK(done.exit_code == 0);
  CHECK_THAT(done.out, ContainsSubstring("all 3 files are as they were written"));
  const std::string shard = out + "/shard-00000.h5", text = out + "/report.txt";
  std::string bytes = esm::read_text_file(shard);
  bytes[bytes.size() - 3] ^= 1;
  esm::write_file_atomically(shard, bytes);
  done = verify();
  CHECK(done.exit_code == 3);
  CHECK_THAT(done.out, ContainsSubstring("DAMAGED  " + shard) && ContainsSubstring("ok       " + text));
  CHECK_THAT(done.err, ContainsSubstring("1 of 3 files") && ContainsSubstring(shard));
  fs::remove(text);
  done = verify();
  CHECK(done.exit_code == 3);
  CHECK_THAT(done.err, ContainsSubstring("2 of 3 files") && ContainsSubstring(text));
  CHECK(esm::test::run({ESM_EXE, "data", "verify", scratch.path()}).exit_code == 3);
}

TEST_CASE("a killed data prepare leaves no half folder, and the next one starts cleanly") {
  const ScratchFolder scratch("esm-cli-data");
  const std::string input = scratch.path() + "/in.fasta", pipe = scratch.path() + "/pipe.fasta",
                    parent = scratch.path() + "/parent", out = parent + "/set";
  std::string text;
  for (int i = 0; i < 6000; ++i)
    text += ">r" + std::to_string(i) + "\n" + std::string(500, "ACDEFGHIKL"[i % 10]) + "\n";
  esm::write_file_atomically(input, text);
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  {
    // The pipe gives the whole file and stays open: the first shards are written, the end never comes.
    const esm::FileDescriptor open_end(::open(pipe.c_str(), O_RDWR));
    esm::test::Process process({"/bin/sh", "-c",
                                "cat '" + input + "' > '" + pipe + "' & exec '" ESM_EXE "' data prepare '" + pipe +
                                    "' --max-shard-mib 1 --out '" + out + "'"});
    const auto shards = [&] {
      int64_t n = 0;
      std::error_code error;
      for (fs::recursive_directory_iterator it(parent, error), end; !error && it != end; it.increment(error))
        n += it->path().extension() == ".h5" ? 1 : 0;
      return n;
    };
    for (int i = 0; i < 600 && shards() == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    REQUIRE(shards() > 0);
    process.send(SIGKILL);
    CHECK(process.wait().signal == SIGKILL);
  }
  CHECK_FALSE(fs::exists(out));
  CHECK_FALSE(fs::is_empty(parent));  // what the killed one had begun
  const Finished done = prepare({input, "--max-shard-mib", "1", "--out", out});
  INFO(done.all());
  CHECK(done.exit_code == 0);
  CHECK_THAT(done.out, ContainsSubstring("6,000 records: 6,000 usable"));
  CHECK(std::distance(fs::directory_iterator(parent), {}) == 1);
  CHECK(esm::test::run({ESM_EXE, "data", "verify", out}).exit_code == 0);
}

TEST_CASE("a killed data prepare is gone on with; so is one that is stopped") {
  const ScratchFolder scratch("esm-cli-data");
  const std::string input = scratch.path() + "/in.fasta", straight = scratch.path() + "/straight";
  std::string text;
  for (int i = 0; i < 80000; ++i) text += fmt::format(">r{}\n{}\n", i, std::string(500, "ACDEFGHIKL"[i % 10]));
  esm::write_file_atomically(input, text);
  REQUIRE(prepare({input, "--max-shard-mib", "1", "--out", straight}).exit_code == 0);
  const auto content = [](const std::string& folder) {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::directory_iterator(folder))
      files[entry.path().filename().string()] = esm::read_text_file(entry.path().string());
    return files;
  };
  for (const int signal : {SIGKILL, SIGTERM}) {
    CAPTURE(signal);
    const std::string parent = fmt::format("{}/parent{}", scratch.path(), signal), out = parent + "/set";
    esm::test::Process process({ESM_EXE, "data", "prepare", input, "--max-shard-mib", "1", "--out", out});
    const auto begun = [&] {
      std::error_code error;
      for (fs::recursive_directory_iterator it(parent, error), end; !error && it != end; it.increment(error))
        if (it->path().filename() == "shard-00002.h5") return true;
      return false;
    };
    for (int i = 0; i < 20000 && !begun(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    process.send(signal);
    const Finished killed = process.wait();
    INFO(killed.all());
    if (signal == SIGKILL) {
      REQUIRE(killed.signal == SIGKILL);
    } else {
      REQUIRE(killed.exit_code == 130);
      CHECK_THAT(killed.err, ContainsSubstring("shards are kept: the same command goes on after them"));
    }
    CHECK_FALSE(fs::exists(out));
    const Finished done = prepare({input, "--max-shard-mib", "1", "--out", out});
    INFO(done.all());
    CHECK(done.exit_code == 0);
    CHECK_THAT(done.err, ContainsSubstring("going on after"));
    CHECK(content(out) == content(straight));
    CHECK(std::distance(fs::directory_iterator(parent), {}) == 1);
  }
}

TEST_CASE("data prepare on a full disk or in an impossible place says so and leaves nothing") {
  const ScratchFolder scratch("esm-cli-data");
  const std::string input = kData + "protein/tiny_train.fasta", parent = scratch.path() + "/parent";
  // Files above 10 KiB cannot be written.
  const Finished full = esm::test::run(
      {"/bin/bash", "-c",
       "trap '' XFSZ; ulimit -f 10; exec '" ESM_EXE "' data prepare '" + input + "' --out '" + parent + "/set'"});
  INFO(full.all());
  CHECK(full.exit_code == 3);
  CHECK_THAT(full.err, ContainsSubstring("shard-00000.h5") && ContainsSubstring("File too large"));
  CHECK(fs::is_empty(parent));
  const Finished below_file = prepare({input, "--out", input + "/set"});
  INFO(below_file.all());
  CHECK(below_file.exit_code == 3);
  CHECK_THAT(below_file.err, ContainsSubstring("tiny_train.fasta") && ContainsSubstring("Not a directory"));
  const Finished other = prepare({input, "--out", scratch.path()});
  INFO(other.all());
  CHECK(other.exit_code == 3);
  CHECK_THAT(other.err, ContainsSubstring("holds other things than shards"));
  CHECK(prepare({input, "--out", input, "--force"}).exit_code == 3);
  CHECK(fs::file_size(input) > 57488);
}

TEST_CASE("Ctrl-C is heard while standard input is silent") {
  const ScratchFolder scratch("esm-cli-data");
  const std::string pipe = scratch.path() + "/silent", folder = scratch.path() + "/parent";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const esm::FileDescriptor open_end(::open(pipe.c_str(), O_RDWR));  // nobody writes, nobody closes
  esm::test::Process process(
      {"/bin/sh", "-c", "exec '" ESM_EXE "' data prepare - --out '" + folder + "/set' < '" + pipe + "'"});
  for (int i = 0; i < 300 && !fs::exists(folder); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  REQUIRE(fs::exists(folder));
  process.send(SIGTERM);
  const Finished done = process.wait();
  INFO(done.all());
  CHECK(done.exit_code == 130);
  CHECK(fs::is_empty(folder));
}

TEST_CASE("Ctrl-C leaves no folder") {
  const ScratchFolder scratch("esm-cli-data");
  // A pipe that never ends: the program reads until it is told to stop.
  const std::string pipe = scratch.path() + "/endless.fasta", folder = scratch.path() + "/parent";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const std::string writer = "(printf '>a\\n'; yes MKV) > '" + pipe +
                             "' 2>/dev/null & exec '" ESM_EXE "' data prepare '" + pipe + "' --out '" + folder +
                             "/set'";
  esm::test::Process process({"/bin/sh", "-c", writer});
  for (int i = 0; i < 300 && !fs::exists(folder); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  REQUIRE(fs::exists(folder));
  process.send(SIGINT);
  const Finished done = process.wait();
  INFO(done.all());
  CHECK(done.exit_code == 130);
  CHECK(fs::is_empty(folder));
}
