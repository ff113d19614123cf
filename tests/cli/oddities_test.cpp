// Every odd input file (tests/data/oddities) through the built program: accepted with the right counts, or refused with
// one clear line. CSV: data_test.cpp; safetensors: convert_test.cpp.
#include <algorithm>
#include <filesystem>
#include <sstream>

#include "base/error.h"
#include "support/catch.h"
#include "tests/cli/training.h"

using esm::ScratchFolder;
using esm::write_file_atomically;
using esm::test::Finished;
using esm::test::in_repository;
using esm::test::run;
namespace fs = std::filesystem;

namespace {

const std::string kOddities = "tests/data/oddities/";

Finished esmtrain(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), ESM_EXE);
  return run(std::move(arguments), in_repository());
}

void check_refused(const Finished& done, int exit_code, const std::string& words) {
  INFO(done.all());
  CHECK(done.exit_code == exit_code);
  CHECK_THAT("\n" + done.err, ContainsSubstring("\nesmtrain: error: "));
  CHECK_THAT(done.err, ContainsSubstring(words));
  CHECK(done.err.find("frame #") == std::string::npos);
}

/// A sound config of one line a setting, `more` on top of it.
std::string config_text(const std::string& more) {
  return "data: {train: a.fasta}\nmodel: {layers: 2, hidden: 64, heads: 4}\n" + more;
}

Finished check_config(const std::string& text, const char* action = "check") {
  const ScratchFolder scratch("esm-odd");
  write_file_atomically(scratch.path() + "/odd.yaml", text);
  return run({ESM_EXE, "config", action, "odd.yaml"}, {.folder = scratch.path()});
}

}  // namespace

TEST_CASE("odd FASTA files: prepared with the counts of their index, repairs and skips named") {
  struct Case {
    const char* file;
    int records, usable, residues;
    const char* words;  // in what is printed
  };
  const Case cases[] = {{"lowercase.fasta", 4, 4, 346, "(lower_case)"},
                        {"stops.fasta", 4, 3, 225, "(inner_stop)"},
                        {"dup_ids.fasta", 6, 6, 405, "repeated ids"},
                        {"dup_sequences.fasta", 8, 8, 528, "repeated sequences"},
                        {"lf.fasta", 5, 5, 510, "5 records"},
                        {"crlf.fasta", 5, 5, 510, "5 records"},
                        {"no_final_newline.fasta", 5, 5, 510, "5 records"},
                        {"bom.fasta", 5, 5, 510, "5 records"},
                        {"blank_lines.fasta", 5, 5, 510, "5 records"},
                        {"multi_member.fasta.gz", 5, 5, 510, "5 records"},
                        {"empty_records.fasta", 6, 3, 182, "3 skipped"},
                        {"semicolon_comments.fasta", 2, 2, 135, "comment lines passed over: 4"},
                        {"around_1022.fasta", 4, 4, 4108, "4 records"},
                        {"spaced.fasta", 2, 2, 301, "2 records"},
                        {"numbered.fasta", 1, 1, 180, "(digit)"},
                        {"rare_letters.fasta", 3, 3, 72, "J, now <unk>"},
                        {"tiny_peptides.fasta", 8, 8, 16, "8 records"},
                        {"three_records.fasta", 3, 3, 180, "3 records"}};
  const ScratchFolder scratch("esm-odd");
  for (const Case& c : cases) {
    const std::string out = scratch.path() + "/" + c.file;
    const Finished done = esmtrain({"data", "prepare", kOddities + "fasta/" + c.file, "--out", out});
    INFO(c.file << "\n" << done.all());
    REQUIRE(done.exit_code == 0);
    CHECK_THAT(done.out, ContainsSubstring(c.words));
    const auto report = nlohmann::json::parse(esm::read_text_file(out + "/report.json"));
    CHECK(report.at("records") == c.records);
    CHECK(report.at("usable") == c.usable);
    CHECK(report.at("residues") == c.residues);
  }
  const std::string cut = kOddities + "fasta/truncated.fasta.gz";
  check_refused(esmtrain({"data", "prepare", cut, "--out", scratch.path() + "/cut"}), 3,
                cut + ": the gzip file is cut");
  CHECK_FALSE(fs::exists(scratch.path() + "/cut"));
}

TEST_CASE("training on few, rare or over-long sequences takes all its steps with finite losses") {
  for (const char* name : {"three_records", "rare_letters", "around_1022"}) {
    const ScratchFolder scratch("esm-odd");
    const std::string config = esm::test::tiny_config(scratch.path(), "train: {max_steps: 4}\n");
    const Finished done =
        run(esm::test::train_command(config, {"--data.train", kOddities + "fasta/" + name + ".fasta",
                                              "--data.max_tokens=1024", "--data.tokens_per_batch=2048"}),
            in_repository());
    INFO(name << "\n" << done.all());
    REQUIRE(done.exit_code == 0);
    int steps = 0;
    for (const auto& [key, row] : esm::test::metric_rows(scratch.path() + "/run")) {
      if (!key.starts_with("step")) continue;
      ++steps;
      CHECK(nlohmann::json::parse(row).at("loss").is_number());
    }
    CHECK(steps == 4);
  }
}

TEST_CASE("false, empty, cut and foreign HDF5 files are refused by name before anything is trained") {
  const ScratchFolder scratch("esm-odd");
  const std::string config = esm::test::tiny_config(scratch.path(), "train: {max_steps: 4}\n");
  for (const auto& [name, words] :
       {std::pair("not_hdf5.h5", "not an HDF5 file"), std::pair("zero_length.h5", "empty (0 bytes)"),
        std::pair("truncated.h5", "cut or damaged"), std::pair("foreign_schema.h5", "found: offsets, tokens")}) {
    const std::string path = kOddities + "hdf5/" + name;
    const Finished done = run(esm::test::train_command(config, {"--data.train", path}), in_repository());
    check_refused(done, 3, path);
    CHECK_THAT(done.err, ContainsSubstring(words));
    CHECK_FALSE(fs::exists(scratch.path() + "/run/metrics.jsonl"));
  }
}

TEST_CASE("numbers are read as they are meant, or refused with key and line") {
  std::istringstream table(esm::read_text_file(ESM_SOURCE_DIR "/tests/data/oddities/config/number_values.tsv"));
  int accepted = 0, refused = 0;
  for (std::string line; std::getline(table, line);) {
    if (line.starts_with("#")) continue;
    const std::string value = line.substr(0, line.find('\t')), expected = line.substr(value.size() + 1);
    const bool is_batch_size = value == "0";
    const std::string text = config_text(is_batch_size ? "optimizer: {weight_decay: 0}\ntrain:\n  micro_batches: 0\n"
                                                       : "optimizer:\n  lr: " + value + "\n");
    const Finished done = check_config(text, "show");
    INFO(line << "\n" << done.all());
    const size_t digits = expected.find_first_not_of("0123456789.");
    const double number =
        std::isdigit(static_cast<unsigned char>(expected[0])) != 0 ? std::stod(expected.substr(0, digits)) : 0.0;
    if (number > 0 && !value.starts_with('"')) {  // text in quotes is refused: documented
      ++accepted;
      CHECK(done.exit_code == 0);
      const size_t at = done.out.find("\n  lr: ");
      REQUIRE(at != std::string::npos);
      CHECK(std::stod(done.out.substr(at + 7)) == number);
    } else {
      ++refused;
      check_refused(done, 2, is_batch_size ? "odd.yaml:5: train.micro_batches:" : "odd.yaml:4: optimizer.lr:");
    }
  }
  CHECK(accepted == 8);
  CHECK(refused == 12);
}

TEST_CASE("each way to misspell a key is refused, with the right spelling where there is a near one") {
  const std::pair<const char*, const char*> cases[] = {
      {"optimizer: {weight_deca: 0.1}\n", "unknown key optimizer.weight_deca; did you mean optimizer.weight_decay?"},
      {"train: {max_stepps: 3}\n", "did you mean train.max_steps?"},
      {"train: {max_stesp: 3}\n", "did you mean train.max_steps?"},
      {"optimizer: {weight-decay: 0.1}\n", "did you mean optimizer.weight_decay?"},
      {"Seed: 3\n", "unknown key Seed; did you mean seed?"},
      {"max_steps: 3\n", "did you mean train.max_steps?"},
      {"train: {inner: {max_steps: 3}}\n", "did you mean train.max_steps?"},
      {"extra: {key: 1}\n", "unknown key extra"},
      {"train: {max_steps: {a: 3}}\n", "train.max_steps: expected an integer, found a map"},
      {"train: 3\n", "train: expected a section"}};
  for (const auto& [text, words] : cases) check_refused(check_config(config_text(text)), 2, words);
}

TEST_CASE("names out of a stranger's file do not reach the terminal as control characters") {
  const ScratchFolder scratch("esm-odd");
  const std::string header = "{\"\\u001b[2Jname\":{\"dtype\":\"F33\",\"shape\":[0],\"data_offsets\":[0,0]}}";
  write_file_atomically(scratch.path() + "/model.safetensors",
                        std::string(1, static_cast<char>(header.size())) + std::string(7, '\0') + header);
  const Finished done =
      esmtrain({"convert", scratch.path() + "/model.safetensors", scratch.path() + "/out", "--to", "hf"});
  check_refused(done, 6, "?[2Jname");
  CHECK(done.err.find('\x1b') == std::string::npos);
}
