// `doctor` and the parts of `bench` that measure a GPU, on a machine without one (a GPU that is there is hidden).
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/files.h"
#include "cli/process.h"
#include "support/catch.h"

namespace {

using esm::test::Finished;

Finished esmtrain(std::vector<std::string> arguments, const std::string& cache = "") {
  arguments.insert(arguments.begin(), ESM_EXE);
  esm::test::ProcessOptions options{.env = {{"CUDA_VISIBLE_DEVICES", ""}}};
  if (!cache.empty()) options.env.emplace_back("XDG_CACHE_HOME", cache);
  return esm::test::run(std::move(arguments), options);
}

const std::string k650M = ESM_SOURCE_DIR "/configs/esm2_650m.yaml";

}  // namespace

TEST_CASE("doctor without a GPU checks what is there, says what it skips, and exits with 0") {
  const esm::ScratchFolder scratch("doctor");
  const Finished done = esmtrain({"doctor", "--seed", "7"}, scratch.path() + "/not/there/yet");
  INFO(done.all());
  CHECK(done.exit_code == 0);
  CHECK(done.err.empty());
  std::vector<std::string> lines;
  std::istringstream text(done.out);
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  REQUIRE(lines.size() >= 7);
  CHECK(lines.back().starts_with("doctor: 0 failed, "));
  CHECK_THAT(lines.back(), ContainsSubstring("1 skipped; seed 7"));
  for (size_t i = 0; i + 1 < lines.size(); ++i) {
    INFO(lines[i]);
    CHECK(
        (lines[i].starts_with("ok       ") || lines[i].starts_with("warning  ") || lines[i].starts_with("skipped  ")));
  }
  for (const char* line : {"\nok       LibTorch             2.11.0\n", "\nok       CPU attention        ",
                           " cases against FP64, 0 wrong; ", "\nskipped  GPU                  ", "ok       memory  ",
                           "/not/there/yet/esmtrain/data: "})
    CHECK_THAT(done.out, ContainsSubstring(line));

  const Finished verbose = esmtrain({"doctor", "--verbose", "--seed", "7"});
  CHECK_THAT(verbose.out, ContainsSubstring("           ok     CPU AVX2 fp32, heads of 24: output "));
}

TEST_CASE("doctor --json prints one object, the same for the same seed") {
  const Finished done = esmtrain({"doctor", "--json", "--seed", "11"});
  INFO(done.all());
  REQUIRE(done.exit_code == 0);
  const auto read = [](const Finished& from) { return nlohmann::json::parse(from.out); };
  const nlohmann::json report = read(done);
  CHECK(report.at("ok") == true);
  CHECK(report.at("failed") == 0);
  CHECK(report.at("skipped") == 1);
  CHECK(report.at("seed") == 11);
  const auto find = [](const nlohmann::json& from, const std::string& name) {
    for (const nlohmann::json& finding : from.at("findings"))
      if (finding.at("name") == name) return finding;
    FAIL("no finding " << name);
    return nlohmann::json();
  };
  CHECK(find(report, "GPU").at("verdict") == "skipped");
  CHECK(find(report, "memory").at("total_bytes") > 0);
  const nlohmann::json attention = find(report, "CPU attention");
  CHECK(attention.at("verdict") == "ok");
  CHECK(attention.at("cases") >= 4);
  CHECK(attention.at("wrong") == 0);
  CHECK(attention.at("worst_share_of_bound") > 0);
  CHECK(attention.at("worst_share_of_bound") <= 1);
  CHECK(find(read(esmtrain({"doctor", "--json", "--seed", "11"})), "CPU attention") == attention);
  CHECK(find(read(esmtrain({"doctor", "--json", "--seed", "12"})), "CPU attention") != attention);
}

TEST_CASE("bench gemm and bench kernels without a GPU exit with 4 and say what to do") {
  for (const std::string command : {"gemm", "kernels"}) {
    const Finished done = esmtrain({"bench", command, "--config", k650M});
    INFO(done.all());
    CHECK(done.exit_code == 4);
    CHECK(done.out.empty());
    CHECK_THAT(done.err, ContainsSubstring("bench " + command + " measures a GPU") &&
                             ContainsSubstring("esmtrain doctor") && ContainsSubstring("preset cuda"));
  }
  CHECK(esmtrain({"bench", "kernels"}).exit_code == 4);  // the 650M model: no config needed
  CHECK(esmtrain({"bench", "gemm", "--config", k650M, "--accuracy"}).exit_code == 4);
}

TEST_CASE("wrong arguments of doctor and bench exit with 2") {
  const Finished option = esmtrain({"doctor", "--verbos"});
  CHECK(option.exit_code == 2);
  CHECK_THAT(option.err, ContainsSubstring("did you mean --verbose?"));
  const Finished missing = esmtrain({"bench", "gemm"});
  CHECK(missing.exit_code == 2);
  CHECK_THAT(missing.err, ContainsSubstring("--config is missing"));
  const Finished formats = esmtrain({"bench", "gemm", "--config", k650M, "--formats", "fp16"});
  CHECK(formats.exit_code == 2);
  CHECK_THAT(formats.err, ContainsSubstring("--formats") && ContainsSubstring("plain"));
  const Finished unknown = esmtrain({"bench", "kernel"});
  CHECK(unknown.exit_code == 2);
  CHECK_THAT(unknown.err, ContainsSubstring("did you mean kernels?"));
  const Finished sizes = esmtrain({"bench", "gemm", "--config", k650M, "--model.heads", "640"});
  CHECK(sizes.exit_code == 2);
  CHECK_THAT(sizes.err, ContainsSubstring("multiples of 8") && ContainsSubstring("heads 640"));
}
