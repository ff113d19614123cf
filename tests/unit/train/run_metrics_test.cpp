// The files of a run beside metrics.jsonl: metrics.csv, tensorboard/, fp8.jsonl.
#include "train/run_metrics.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/check.h"
#include "base/crc32c.h"
#include "support/catch.h"

using namespace esm;
using namespace esm::train;
namespace fs = std::filesystem;

namespace {

StepMetrics row(int64_t step) {
  StepMetrics m;
  m.step = step;
  m.loss = 1.0 / 3;
  m.grad_norm = std::numeric_limits<double>::infinity();
  m.lr = 1e-4;
  m.tokens = 100;
  m.padded_tokens = 128;
  m.seconds = 0.5;
  return m;
}

StepStatistics statistics(int64_t step) {
  return {.step = step,
          .tensors = {{.layer = "layers.3", .tensor = "fc1.x", .amax = 2, .scale = 4, .underflow = 0.5}},
          .layers = {{.layer = "layers.3", .mean = 1, .variance = 2, .grad_norm = 3}}};
}

template <class T>
T read(std::string_view bytes) {
  T value{};
  REQUIRE(bytes.size() >= sizeof value);
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

// Checks the frame around each record, as TFRecord is specified; the contents.
std::vector<std::string> records(const std::string& path) {
  const auto masked = [](std::string_view bytes) {
    const uint32_t crc = crc32c(bytes);
    return std::rotr(crc, 15) + 0xA282EAD8;
  };
  const std::string text = read_text_file(path);
  std::vector<std::string> found;
  for (std::string_view rest = text; !rest.empty();) {
    const auto length = read<uint64_t>(rest);
    REQUIRE(rest.size() >= length + 16);
    REQUIRE(read<uint32_t>(rest.substr(8)) == masked(rest.substr(0, 8)));
    found.emplace_back(rest.substr(12, length));
    REQUIRE(read<uint32_t>(rest.substr(12 + length)) == masked(found.back()));
    rest.remove_prefix(length + 16);
  }
  return found;
}

// Fields of one protocol-buffer message: number -> raw value (varints as 8 bytes).
std::multimap<uint64_t, std::string> fields(std::string_view bytes) {
  const auto varint = [&] {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      REQUIRE_FALSE(bytes.empty());
      const auto byte = static_cast<unsigned char>(bytes[0]);
      bytes.remove_prefix(1);
      value |= uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) return value;
    }
  };
  std::multimap<uint64_t, std::string> found;
  while (!bytes.empty()) {
    const uint64_t key = varint();
    if (key % 8 == 0) {
      const uint64_t value = varint();
      found.emplace(key / 8, std::string(reinterpret_cast<const char*>(&value), sizeof value));
      continue;
    }
    REQUIRE((key % 8 == 1 || key % 8 == 2 || key % 8 == 5));
    const uint64_t size = key % 8 == 1 ? 8 : key % 8 == 5 ? 4 : varint();
    REQUIRE(bytes.size() >= size);
    found.emplace(key / 8, bytes.substr(0, size));
    bytes.remove_prefix(size);
  }
  return found;
}

// "loss=1 step 7" for scalars, "version", "start 8".
std::vector<std::string> events(const std::string& path) {
  std::vector<std::string> found;
  for (const std::string& record : records(path)) {
    const auto event = fields(record);
    CHECK(read<double>(event.find(1)->second) > 1.5e9);
    const auto step = read<int64_t>(event.find(2)->second);
    if (event.contains(3)) found.push_back(event.find(3)->second);
    if (event.contains(7)) {
      CHECK(read<int64_t>(fields(event.find(7)->second).find(1)->second) == 1);
      found.push_back(fmt::format("start {}", step));
    }
    if (!event.contains(5)) continue;
    for (const auto& [number, bytes] : fields(event.find(5)->second)) {
      CHECK(number == 1);
      const auto value = fields(bytes);
      found.push_back(fmt::format("{} {} {:.6g}", step, value.find(1)->second, read<float>(value.find(2)->second)));
    }
  }
  return found;
}

std::vector<std::string> event_files(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<std::string> lines_of(const std::string& path) {
  std::vector<std::string> lines;
  std::istringstream in(read_text_file(path));
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

}  // namespace

TEST_CASE("without further keys a run writes metrics.jsonl alone") {
  const ScratchFolder scratch("esm-rows");
  const RunFolder folder(scratch.path() + "/run");
  RunMetrics(folder, {}, 0, true).append(row(1));
  CHECK(lines_of(folder.metrics()).size() == 1);
  for (const std::string& path : {folder.csv(), folder.tensorboard(), folder.fp8_statistics()}) {
    CAPTURE(path);
    CHECK_FALSE(fs::exists(path));
  }
}

TEST_CASE("metrics.csv has the columns of metrics.jsonl, one header, and each step once") {
  const ScratchFolder scratch("esm-rows");
  const std::string path = scratch.path() + "/metrics.csv";
  {
    MetricsCsv csv(path, 0);
    for (int64_t step = 1; step <= 4; ++step) csv.append(row(step));
  }
  StepMetrics skipped = row(1);
  skipped.skipped = true;
  MetricsLog(scratch.path() + "/metrics.jsonl", 0, true).append(skipped);
  const auto json = nlohmann::ordered_json::parse(read_text_file(scratch.path() + "/metrics.jsonl"));
  std::string names;
  for (const auto& [name, value] : json.items()) names += "," + name;
  CHECK(lines_of(path).at(0) == names.substr(1) + "\r");
  CHECK(lines_of(path).at(1) == "1,0.33333333333333331,,0.0001,100,200,128,0,0.5,false\r");

  const std::string whole = read_text_file(path);
  for (size_t torn = 1; torn < 12; ++torn) {
    write_file_atomically(path, whole.substr(0, whole.size() - torn));
    MetricsCsv(path, 4).append(row(5));
    REQUIRE(lines_of(path).size() == (torn == 1 ? 6 : 5));  // without its LF the row is still whole
    REQUIRE(lines_of(path).back().starts_with("5,"));
  }
  std::string unix_ends;  // as editors and dos2unix leave it
  for (const char c : whole)
    if (c != '\r') unix_ends += c;
  write_file_atomically(path, unix_ends);
  MetricsCsv(path, 3).append(row(4));
  CHECK(lines_of(path).size() == 5);
  MetricsCsv(path, 1).append(row(2));
  CHECK(lines_of(path).size() == 3);
  cut_metrics_csv(path, 1);
  CHECK(lines_of(path).size() == 2);
  const std::string of_somebody = "step,loss\n1,2\n7,3\n";
  write_file_atomically(path, of_somebody);
  cut_metrics_csv(path, 1);
  CHECK(read_text_file(path) == of_somebody);
  CHECK_THROWS_WITH(MetricsCsv(path, 1), ContainsSubstring("other columns"));
  CHECK(read_text_file(path) == of_somebody);
  write_file_atomically(path, "step,loss\r\n1,2\r\n");
  CHECK_THROWS_AS(MetricsCsv(path, 1), DataError);
}

TEST_CASE("TensorBoard files hold what was appended; a resume tells readers what to forget") {
  const ScratchFolder scratch("esm-rows");
  const std::string folder = scratch.path() + "/tensorboard";
  {
    TensorBoardLog log(folder, 0);
    log.append(row(300));
    log.append({.step = 300,
                .sets = {{"main set", EvalMetrics{.loss = 2.5, .perplexity = 12, .accuracy = 0.25}}},
                .drawn = {{"mine", 3, 1000, 0.5}}});
    log.append(statistics(300));
  }
  REQUIRE(event_files(folder).size() == 1);
  CHECK(events(event_files(folder)[0]) ==
        std::vector<std::string>{
            "brain.Event:2", "300 train/loss 0.333333", "300 train/grad_norm inf", "300 train/lr 0.0001",
            "300 train/tokens_per_s 200", "300 valid/main set/loss 2.5", "300 valid/main set/perplexity 12",
            "300 valid/main set/accuracy 0.25", "300 drawn/mine/tokens 1000", "300 drawn/mine/epochs 0.5",
            "300 fp8/layers.3.fc1.x/amax 2", "300 fp8/layers.3.fc1.x/scale 4", "300 fp8/layers.3.fc1.x/underflow 0.5",
            "300 fp8/layers.3.fc1.x/overflow 0", "300 fp8/layers.3/mean 1", "300 fp8/layers.3/variance 2",
            "300 fp8/layers.3/grad_norm 3"});
  for (int start = 2; start <= 4; ++start) {  // within one second, and still each behind those before it
    const auto before = event_files(folder);
    { TensorBoardLog log(folder, 300); }
    const auto after = event_files(folder);
    REQUIRE(after.size() == before.size() + 1);
    CHECK(std::equal(before.begin(), before.end(), after.begin()));
    CHECK(events(after.back()) == std::vector<std::string>{"brain.Event:2", "start 301"});
    CHECK(events(after.front()).size() == 17);
  }
}

TEST_CASE("a resume cuts later steps from TensorBoard files, and what is torn or damaged") {
  const ScratchFolder scratch("esm-rows");
  const std::string folder = scratch.path() + "/tensorboard";
  cut_event_files(folder, 0);
  CHECK_FALSE(fs::exists(folder));
  {
    TensorBoardLog log(folder, 0);
    for (int64_t step = 127; step <= 130; ++step) log.append(row(step));
  }
  const std::string path = event_files(folder).at(0), whole = read_text_file(path);
  const size_t last = whole.size() - 16 - records(path).back().size();
  for (size_t bytes = last; bytes < whole.size(); ++bytes) {
    write_file_atomically(path, whole.substr(0, bytes));
    cut_event_files(folder, 130);
    REQUIRE(read_text_file(path) == whole.substr(0, last));
  }
  std::string damaged = whole;
  damaged[last + 20] ^= 1;
  write_file_atomically(path, damaged);
  cut_event_files(folder, 130);
  CHECK(read_text_file(path) == whole.substr(0, last));
  write_file_atomically(path, whole);
  cut_event_files(folder, 130);
  CHECK(read_text_file(path) == whole);
  cut_event_files(folder, 128);
  CHECK(records(path).size() == 3);
  CHECK(events(path).back() == "128 train/tokens_per_s 200");
  cut_event_files(folder, 0);
  CHECK(events(path) == std::vector<std::string>{"brain.Event:2"});
}

TEST_CASE("a resume cuts every file, also one that is not written any more") {
  const ScratchFolder scratch("esm-rows");
  const RunFolder folder(scratch.path() + "/run");
  RunSection all;
  all.csv = all.tensorboard = true;
  {
    RunMetrics metrics(folder, all, 0, true);
    for (int64_t step = 1; step <= 4; ++step) metrics.append(row(step));
    metrics.append({.step = 4, .sets = {{"main", EvalMetrics{}}}, .drawn = {}});
    metrics.append(statistics(2));
    metrics.append(statistics(4));
  }
  CHECK(lines_of(folder.metrics()).size() == 5);
  CHECK(lines_of(folder.csv()).size() == 5);
  { RunMetrics metrics(folder, {}, 3, true); }
  CHECK(lines_of(folder.metrics()).size() == 3);
  CHECK(lines_of(folder.csv()).size() == 4);
  CHECK(read_statistics(folder.fp8_statistics()).size() == 1);
  REQUIRE(event_files(folder.tensorboard()).size() == 1);
  CHECK(events(event_files(folder.tensorboard())[0]).size() == 1 + 3 * 4 + 7);
  {
    RunMetrics metrics(folder, all, 3, true);
    metrics.append(row(4));
    metrics.append(statistics(4));
  }
  CHECK(lines_of(folder.csv()).size() == 5);
  CHECK(read_statistics(folder.fp8_statistics()).size() == 2);
}
