#include "train/fp8_statistics.h"

#include <cmath>
#include <limits>

#include "base/error.h"
#include "support/catch.h"

using namespace esm;
using namespace esm::train;

namespace {

StepStatistics row(int64_t step) {
  StepStatistics s{.step = step};
  s.tensors.push_back(
      {.layer = "layers.3", .tensor = "fc1.x", .amax = 2.5, .scale = 128, .underflow = 1.0 / 3, .overflow = 1e-9});
  s.tensors.push_back({.layer = "layers.3", .tensor = "fc1.dy", .amax = std::numeric_limits<double>::infinity()});
  s.layers.push_back({.layer = "layers.3", .mean = -0.1, .variance = 1.5, .grad_norm = 0.02});
  return s;
}

std::vector<int64_t> steps_of(const std::string& path) {
  std::vector<int64_t> steps;
  for (const StepStatistics& s : read_statistics(path)) steps.push_back(s.step);
  return steps;
}

}  // namespace

TEST_CASE("FP8 statistics survive the file; what is not finite comes back as NaN") {
  const ScratchFolder scratch("esm-fp8");
  const std::string path = scratch.path() + "/fp8.jsonl";
  StatisticsLog(path, 0).append(row(7));
  const auto rows = read_statistics(path);
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].step == 7);
  REQUIRE(rows[0].tensors.size() == 2);
  const TensorStatistics& t = rows[0].tensors[0];
  CHECK(t.layer == "layers.3");
  CHECK(t.tensor == "fc1.x");
  CHECK(t.amax == 2.5);
  CHECK(t.scale == 128);
  CHECK(t.underflow == 1.0 / 3);
  CHECK(t.overflow == 1e-9);
  CHECK(std::isnan(rows[0].tensors[1].amax));
  REQUIRE(rows[0].layers.size() == 1);
  CHECK(rows[0].layers[0].mean == -0.1);
  CHECK(rows[0].layers[0].variance == 1.5);
  CHECK(rows[0].layers[0].grad_norm == 0.02);
}

TEST_CASE("a resume cuts FP8 statistics of later steps and torn lines") {
  const ScratchFolder scratch("esm-fp8");
  const std::string path = scratch.path() + "/fp8.jsonl";
  {
    StatisticsLog log(path, 0);
    for (int64_t step = 2; step <= 8; step += 2) log.append(row(step));
  }
  const std::string whole = read_text_file(path);
  // A kill may tear the last line anywhere; readers see the rows before it.
  for (size_t bytes = whole.size() - 1; whole[bytes - 1] != '\n'; --bytes) {
    write_file_atomically(path, whole.substr(0, bytes));
    REQUIRE(steps_of(path) == std::vector<int64_t>{2, 4, 6});
  }
  write_file_atomically(path, whole.substr(0, whole.size() - 9));
  StatisticsLog(path, 9).append(row(10));
  CHECK(steps_of(path) == std::vector<int64_t>{2, 4, 6, 10});
  StatisticsLog(path, 5).append(row(6));
  CHECK(steps_of(path) == std::vector<int64_t>{2, 4, 6});
  StatisticsLog(path, 0).append(row(2));
  CHECK(steps_of(path) == std::vector<int64_t>{2});
}

TEST_CASE("damage within FP8 statistics is named with file and line") {
  const ScratchFolder scratch("esm-fp8");
  const std::string path = scratch.path() + "/fp8.jsonl";
  const std::string good = R"({"step": 1, "tensors": [], "layers": []})";
  for (const std::string bad :
       {R"({"step": 2, "tens)", "", "7", R"({"tensors": [], "layers": []})",
        R"({"step": 2, "tensors": [{"layer": "a"}], "layers": []})", R"({"step": "2", "tensors": [], "layers": []})",
        R"({"step": 2, "tensors": [], "layers": [{"layer": "a", "mean": "x", "variance": 1, "grad_norm": 1}]})"}) {
    CAPTURE(bad);
    write_file_atomically(path, good + "\n" + bad + "\n" + R"({"step": 3, "tensors": [], "layers": []})" + "\n");
    CHECK_THROWS_AS(read_statistics(path), DataError);
    CHECK_THROWS_WITH(read_statistics(path), ContainsSubstring(path + ":2: "));
  }
  write_file_atomically(path, good + "\n" + good + "\n");
  CHECK_THROWS_WITH(read_statistics(path), ContainsSubstring(path + ":2: step 1 after step 1"));
  CHECK_THROWS_AS(read_statistics(scratch.path() + "/none"), DataError);
}
