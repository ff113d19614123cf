// `esmtrain bench` on the CPU: what it prints, not how fast it is.
#include <regex>

#include "support/catch.h"
#include "tests/cli/training.h"

using namespace esm;
using namespace esm::test;

namespace {

std::string bench(std::vector<std::string> arguments, const std::string& folder) {
  arguments.insert(arguments.begin(), {ESM_EXE, "bench"});
  arguments.insert(arguments.end(), {"--config", tiny_config(folder), "--device", "cpu"});
  const Finished done = run(std::move(arguments), in_repository());
  INFO(done.all());
  REQUIRE(done.exit_code == 0);
  return done.out;
}

/// The number in front of `unit` in the line that begins with `name`.
double figure(const std::string& out, const std::string& name, const std::string& unit) {
  std::smatch found;
  INFO(out);
  REQUIRE(std::regex_search(out, found, std::regex("(^|\\n)" + name + "[^\\n]*?([0-9.,e+-]+) " + unit)));
  std::string digits = found[2];
  std::erase(digits, ',');
  return std::stod(digits);
}

}  // namespace

TEST_CASE("bench step on real and synthetic proteins") {
  const ScratchFolder scratch("esm-bench");
  for (const bool real : {false, true}) {
    std::vector<std::string> arguments{"step", "--steps", "2", "--warmup", "1"};
    if (real) arguments.push_back("--real-data");
    const std::string out = bench(arguments, scratch.path());
    CHECK(figure(out, "tokens a step", "slots") == 512);
    CHECK(figure(out, "tokens a step", "real") > 384);
    // 1 layer x 32: 6 (12 d^2 + d^2 + 33 d) + 12 d l FLOP a token.
    const double length = figure(out, "arithmetic", "FLOP a token") - 6 * (12 * 1024 + 1024 + 33 * 32);
    CHECK(length / (12 * 32) > 50);
    CHECK(length / (12 * 32) < 129);  // four digits are printed
    CHECK(figure(out, "share of the product", "% of") > 0);
    CHECK(figure(out, "loss", "at first") > 3);
    for (const std::string phase : {"  GEMM forward", "  GEMM wgrad", "  attention backward", "  GELU backward",
                                    "  AdamW", "  gradient norm", "  scored rows and loss"})
      CHECK(figure(out, phase, "times") >= 1);
    CHECK_THAT(out, ContainsSubstring("peak memory"));
  }
}

TEST_CASE("bench forward stops at embeddings") {
  const ScratchFolder scratch("esm-bench");
  const std::string out = bench({"forward", "--steps", "2", "--warmup", "0", "--seqlen", "128"}, scratch.path());
  CHECK(figure(out, "tokens a batch", "real") == 512);
  CHECK(figure(out, "arithmetic", "FLOP a token") == 2 * 12 * 1024 + 4 * 32 * 128);
  CHECK(figure(out, "  GEMM forward", "times") == 4);
  CHECK(out.find("backward") == std::string::npos);
  CHECK(out.find("scored rows") == std::string::npos);
}

TEST_CASE("bench data counts what it makes") {
  const ScratchFolder scratch("esm-bench");
  const std::string out = bench({"data", "--tokens", "20000"}, scratch.path());
  CHECK(figure(out, "batches", "of 512 slots") >= 40);
  CHECK(figure(out, "batches", "% full") > 90);
  CHECK(figure(out, "scored tokens", "%") > 10);
  CHECK(figure(out, "scored tokens", "%") < 20);
  CHECK(figure(out, "tokens/s of a core", "real") > 0);
}
