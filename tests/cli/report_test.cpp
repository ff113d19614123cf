// `esmtrain report`, and the other files that a run writes its metrics to.
#include <algorithm>

#include "support/catch.h"
#include "support/xml.h"
#include "tests/cli/training.h"

using namespace esm;
using namespace esm::test;
namespace fs = std::filesystem;

namespace {

std::string statistics_row(int step) {
  std::string tensors, layers;
  for (int layer = 0; layer < 3; ++layer) {
    const std::string comma = layer > 0 ? ", " : "";
    tensors += fmt::format(R"({}{{"layer": "layers.{}", "tensor": "fc1.x", "amax": 2, "scale": 64, )"
                           R"("underflow": {}, "overflow": 0}})",
                           comma, layer, 0.25 * layer);
    layers += fmt::format(R"({}{{"layer": "layers.{}", "mean": 0, "variance": null, "grad_norm": 1}})", comma, layer);
  }
  return fmt::format(R"({{"step": {}, "tensors": [{}], "layers": [{}]}})", step, tensors, layers) + "\n";
}

Finished report(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {ESM_EXE, "report"});
  return run(std::move(arguments));
}

}  // namespace

TEST_CASE("report without a name lists the reports") {
  const Finished done = report({});
  INFO(done.all());
  CHECK(done.exit_code == 0);
  CHECK(done.err.empty());
  CHECK_THAT(done.out, ContainsSubstring("\n  fp8  "));
  CHECK(report({"--help"}).out == done.out);
  CHECK(report({"fp9"}).exit_code == 2);
}

TEST_CASE("report fp8 prints a table and writes pictures") {
  const ScratchFolder scratch("esm-report");
  std::string rows;
  for (int step = 100; step <= 3000; step += 100) rows += statistics_row(step);
  write_file_atomically(scratch.path() + "/fp8.jsonl", rows + R"({"step": 3100, "ten)");
  const std::string svg = scratch.path() + "/a.svg", html = scratch.path() + "/a.html";
  const Finished done = report({"fp8", scratch.path(), "--svg", svg, "--html", html});
  INFO(done.all());
  REQUIRE(done.exit_code == 0);
  CHECK(done.err.empty());
  for (const std::string text : {"underflow", "of 30 steps", " 3000\n", "layers.2   0.5 "})
    CHECK_THAT(done.out, ContainsSubstring(text));
  CHECK(xml_problem(read_text_file(svg)) == "");
  CHECK_THAT(read_text_file(svg), ContainsSubstring("layers.2, step 3000: 0.5"));
  CHECK_THAT(read_text_file(html), ContainsSubstring(read_text_file(svg)));
  const Finished variance = report({"fp8", scratch.path(), "--metric=variance"});
  CHECK(variance.exit_code == 0);
  CHECK_THAT(variance.out, ContainsSubstring("layers.0   nan"));
}

TEST_CASE("report fp8 says what is wrong and what to do") {
  const ScratchFolder scratch("esm-report");
  const auto check = [&](std::vector<std::string> arguments, int code, const std::string& text) {
    arguments.insert(arguments.begin(), "fp8");
    const Finished done = report(std::move(arguments));
    INFO(done.all());
    CHECK(done.exit_code == code);
    CHECK(done.out.empty());
    CHECK_THAT(done.err, ContainsSubstring(text));
  };
  check({}, 2, "RUN");
  check({scratch.path() + "/none"}, 3, "no such run");
  check({scratch.path()}, 3, "fp8.statistics_every_steps");
  write_file_atomically(scratch.path() + "/fp8.jsonl", "");
  check({scratch.path()}, 3, "has no row yet");
  for (const auto& [row, text] : {std::pair("{\"step\": 1\n", "fp8.jsonl:1: damaged: not JSON"),
                                  std::pair("{\"step\": 1e300}\n", "'step' is no integer")}) {
    write_file_atomically(scratch.path() + "/fp8.jsonl", row);
    check({scratch.path()}, 3, text);
  }
  write_file_atomically(scratch.path() + "/fp8.jsonl", statistics_row(1));
  check({scratch.path(), "--metric", "amaxx"}, 2, "did you mean amax");
  check({scratch.path(), "--tensor", "fc2.x"}, 2, "did you mean fc1.x?");
  check({scratch.path(), "--metric=mean", "--tensor=fc1.x"}, 2, "leave the tensor out");
  check({scratch.path(), "--svg", scratch.path() + "/none/a.svg"}, 3, "none/a.svg");
  write_file_atomically(scratch.path() + "/fp8.jsonl", "x\n" + statistics_row(1));
  check({scratch.path()}, 3, "fp8.jsonl:1: ");
}

TEST_CASE("run.csv and run.tensorboard: resumed or not, each step once; without them no files") {
  const ScratchFolder scratch("esm-report");
  const std::string config = tiny_config(scratch.path()), folder = scratch.path() + "/run";
  const auto train = [&](std::vector<std::string> flags) {
    const Finished done = run(train_command(config, std::move(flags)), in_repository());
    INFO(done.all());
    REQUIRE(done.exit_code == 0);
  };
  const auto csv_steps = [&] {
    std::vector<std::string> steps;
    std::istringstream lines(read_text_file(folder + "/metrics.csv"));
    for (std::string line; std::getline(lines, line);) steps.push_back(line.substr(0, line.find(',')));
    return steps;
  };
  const std::vector<std::string> on{"--run.csv=true", "--run.tensorboard=true"};
  train({"--train.max_steps=2", "--checkpoint.every_steps=2", on[0], on[1]});
  train({"--train.max_steps=4", "--resume=auto", on[0], on[1]});
  CHECK(csv_steps() == std::vector<std::string>{"step", "1", "2", "3", "4"});
  fs::remove_all(folder + "/checkpoints/step-000000004");
  train({"--train.max_steps=3", "--resume=auto", on[0], on[1]});
  CHECK(csv_steps() == std::vector<std::string>{"step", "1", "2", "3"});
  const auto files = [&] { return std::distance(fs::directory_iterator(folder + "/tensorboard"), {}); };
  CHECK(files() == 3);
  train({"--train.max_steps=5", "--resume=auto"});
  CHECK(csv_steps().size() == 4);
  CHECK(files() == 3);
  CHECK_FALSE(fs::exists(folder + "/fp8.jsonl"));
}
