// The memory plan against real models, measurements, and what it says when memory runs out.
#include "train/memory_plan.h"

#include <new>

#include "device/memory.h"
#include "support/batches.h"
#include "support/catch.h"
#include "support/torch.h"
#include "train/memory_report.h"
#include "train/optimizer.h"
#include "train/setup.h"

using namespace esm;
using namespace esm::test;
using train::Use;

namespace {

train::RunConfig small_run() {
  train::RunConfig config;
  config.device = train::DeviceChoice::kCpu;
  config.model.layers = 3;
  config.model.hidden = 48;
  config.model.heads = 3;
  config.data.tokens_per_batch = 512;
  config.data.max_tokens = 128;
  config.train.threads = 2;
  return config;
}

struct Published {
  int64_t layers, hidden, heads;
};
constexpr Published k8M{6, 320, 20}, k35M{12, 480, 20}, k150M{30, 640, 20}, k650M{33, 1280, 20}, k3B{36, 2560, 40};

train::RunConfig published(const Published& shape, int64_t tokens) {
  train::RunConfig config;
  config.model.layers = shape.layers;
  config.model.hidden = shape.hidden;
  config.model.heads = shape.heads;
  config.data.tokens_per_batch = tokens;
  return config;
}

const train::PlanPlace& h200() { return train::usual_cards()[2]; }

void check_equal(const std::vector<ops::MemoryPart>& actual, const std::vector<ops::MemoryPart>& expected) {
  REQUIRE(actual.size() == expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    CAPTURE(expected[i].name);
    CHECK(actual[i].name == expected[i].name);
    CHECK(actual[i].bytes == expected[i].bytes);
    CHECK(actual[i].rounding_bytes == expected[i].rounding_bytes);
  }
}

}  // namespace

TEST_CASE("every part of a plan is what a real model holds, before and after its first step") {
  train::RunConfig config = small_run();
  config.precision = GENERATE(precision::Precision::kFp32, precision::Precision::kBf16);
  config.train.recompute = GENERATE(nn::Recompute::kNone, nn::Recompute::kSelective, nn::Recompute::kFull);
  const Use use = GENERATE(Use::kTraining, Use::kEvaluation);
  const bool few_bytes = GENERATE(false, true);
  CAPTURE(static_cast<int>(config.precision), static_cast<int>(config.train.recompute), static_cast<int>(use),
          few_bytes);
  if (few_bytes) {
    config.optimizer.moments = precision::MomentFormat::kE4M3;
    if (config.precision == precision::Precision::kBf16)
      config.optimizer.master = precision::MasterFormat::kBF16Remainder;
  }
  const train::MemoryPlan plan = train::plan_memory(config, train::present_place(config), use);

  const Context context{.threads = 2};
  const auto model = train::build_model(context, config, {}, use == Use::kTraining, {});
  if (use == Use::kTraining) train::Optimizer(context, model->units(), config.optimizer);
  check_equal(plan.parts, train::memory_parts(*model));

  const data::Batch batch =
      make_batch({random_row(1, 128), random_row(2, 60), random_row(3, 1), random_row(4, 128)}, 512);
  if (use == Use::kTraining) model->forward_backward(batch);
  model->evaluate(batch);
  check_equal(plan.parts, train::memory_parts(*model));

  CHECK(plan.parameters == model->parameter_count());
  int64_t sum = 0;
  for (const ops::MemoryPart& part : plan.parts) sum += part.bytes;
  CHECK(plan.step_bytes == sum);
  CHECK(plan.peak_bytes() == sum);
}

TEST_CASE("what was measured on an H200 is within a hundredth of the plan") {
  // cudaMemGetInfo at the end of `bench step`, BF16 with FP32 states: tests/bench/results/2026-11-30_h200.
  const auto [shape, tokens, measured_gib] = GENERATE(table<Published, int64_t, double>({
      {k8M, 65536, 3.9},
      {k150M, 65536, 28.4},
      {k650M, 65536, 66.4},
      {k650M, 131072, 121.1},
      {k3B, 16384, 78.3},
      {k3B, 32768, 108.0},
  }));
  const double gib = 1 << 30;
  const train::MemoryPlan plan = train::plan_memory(published(shape, tokens), h200());
  CAPTURE(shape.hidden, tokens, measured_gib, static_cast<double>(plan.step_bytes) / gib);
  CHECK(static_cast<double>(plan.step_bytes) / gib == Approx(measured_gib).epsilon(0.015));
}

TEST_CASE("recompute keeps what nn/recompute.h says") {
  train::RunConfig config = published(k650M, 8192);
  const auto bytes = [&](nn::Recompute recompute) {
    config.train.recompute = recompute;
    return train::plan_memory(config, h200()).step_bytes;
  };
  const int64_t row = 2 * config.model.hidden * config.data.tokens_per_batch;  // D elements of all tokens
  const int64_t none = bytes(nn::Recompute::kNone), selective = bytes(nn::Recompute::kSelective),
                full = bytes(nn::Recompute::kFull);
  const int64_t others = config.model.layers - 1;  // one set of buffers stays, for all
  CHECK(static_cast<double>(none - selective) == Approx(static_cast<double>(others * 4 * row)).epsilon(0.01));
  CHECK(static_cast<double>(selective - full) == Approx(static_cast<double>(others * 5 * row)).epsilon(0.02));
  config.train.recompute_layers = 17;  // share one set of buffers
  const int64_t some = bytes(nn::Recompute::kSelective);
  CHECK(static_cast<double>(none - some) == Approx(static_cast<double>(16 * 4 * row)).epsilon(0.01));
  config.train.recompute_layers = 1;  // what the last layer that shares has kept is still there: nothing to gain
  CHECK(bytes(nn::Recompute::kFull) == none);
}

TEST_CASE("weights of MXFP8 and NVFP4 take codes and scales where the device multiplies them, else BF16 twice") {
  train::RunConfig config = published(k8M, 1024);
  const auto weights = [&](precision::Precision precision, const train::PlanPlace& place) {
    config.precision = precision;
    for (const ops::MemoryPart& part : train::plan_memory(config, place).parts)
      if (part.name == "codes of weights") return part.bytes;
    return int64_t{0};
  };
  const train::PlanPlace b200 = train::usual_cards()[3];
  // Of a layer: qkv 3, out 1, fc1 4, fc2 4 times D x D, in both orders. Rows of scales are padded to 128.
  const auto scales = [&](int64_t width) {
    int64_t bytes = 0;
    for (const auto& [out, in] : {std::pair<int64_t, int64_t>{960, 320}, {320, 320}, {1280, 320}, {320, 1280}})
      for (const auto& [rows, k] : {std::pair{out, in}, {in, out}})
        bytes += (rows + 127) / 128 * 128 * ((k / width + 3) / 4 * 4);
    return 6 * bytes;
  };
  const int64_t elements = int64_t{6} * 2 * 12 * 320 * 320;
  for (const auto precision : {precision::Precision::kMxfp8, precision::Precision::kNvfp4})
    CHECK(weights(precision, h200()) == 2 * elements);
  // Both orders have room for the larger scales.
  const int64_t mx = weights(precision::Precision::kMxfp8, b200), nv = weights(precision::Precision::kNvfp4, b200);
  CHECK(mx >= elements + scales(32));
  CHECK(mx < elements + scales(32) * 5 / 4);
  CHECK(nv >= elements / 2 + scales(16));
  CHECK(nv < elements / 2 + scales(16) * 5 / 4);
}

TEST_CASE("the largest number of tokens fits, and no more does") {
  train::RunConfig config = published(k650M, 1024);
  const Use use = GENERATE(Use::kTraining, Use::kEvaluation);
  const size_t mode = GENERATE(0, 1, 2);
  const auto& card = train::usual_cards()[0];
  const int64_t tokens = train::what_fits(config, card, use)[mode];
  config.train.recompute = static_cast<nn::Recompute>(mode);
  CAPTURE(tokens, mode);
  REQUIRE(tokens > 1024);
  CHECK(tokens % 128 == 0);
  const auto peak = [&](int64_t n) {
    config.data.tokens_per_batch = n;
    return static_cast<double>(train::plan_memory(config, card, use).peak_bytes());
  };
  const auto memory = static_cast<double>(card.memory_bytes);
  CHECK(peak(tokens) <= 0.98 * memory);
  if (tokens < train::kMostTokens) CHECK(peak(tokens + 128) > 0.98 * memory);
}

TEST_CASE("a model too large for a card fits with no number of tokens") {
  const auto cards = train::usual_cards();
  CHECK(train::what_fits(published(k3B, 1024), cards[0]) == train::Fits{0, 0, 0});
  CHECK(train::what_fits(published(k3B, 1024), cards[1])[0] > 1024);
}

TEST_CASE("weights and moments take the bytes of their formats, in memory and in checkpoints") {
  using precision::MasterFormat;
  using precision::MomentFormat;
  train::RunConfig config = published(k650M, 8192);
  const train::MemoryPlan full = train::plan_memory(config, h200());
  const auto [master, moments, memory, disk] = GENERATE(table<MasterFormat, MomentFormat, double, double>({
      {MasterFormat::kF32, MomentFormat::kBF16, 4, 4},
      {MasterFormat::kBF16Remainder, MomentFormat::kF32, 2, 0},
      {MasterFormat::kBF16Remainder, MomentFormat::kE4M3, 2 + 5.9375, 5.9375},
      {MasterFormat::kBF16, MomentFormat::kBF16, 4 + 4, 2 + 4},
  }));
  config.optimizer.master = master;
  config.optimizer.moments = moments;
  const train::MemoryPlan plan = train::plan_memory(config, h200());
  const auto n = static_cast<double>(plan.parameters);
  CHECK(static_cast<double>(full.step_bytes - plan.step_bytes) / n == Approx(memory).epsilon(0.02));  // allocator
  CHECK(static_cast<double>(full.checkpoint_bytes - plan.checkpoint_bytes) / n == Approx(disk).margin(0.01));
}

TEST_CASE("an evaluation holds no gradients and keeps nothing") {
  const train::RunConfig config = published(k150M, 8192);
  CHECK(train::plan_memory(config, h200(), Use::kEvaluation).step_bytes * 3 <
        train::plan_memory(config, h200()).step_bytes);
}

TEST_CASE("the timing of GEMMs counts, where there is any") {
  train::RunConfig config = published(k150M, 65536);
  const train::MemoryPlan timed = train::plan_memory(config, h200());
  CHECK(timed.peak_bytes() == timed.start_bytes);
  // The operands of fc2 with its residual.
  CHECK(timed.start_bytes > timed.step_bytes + 2 * 65536 * (4 * 640 + 2 * 640));
  config.deterministic = true;
  const train::MemoryPlan untimed = train::plan_memory(config, h200());
  CHECK(untimed.start_bytes == untimed.step_bytes);
}

TEST_CASE("out of memory: the table, what is free, what would fit") {
  train::RunConfig config = published(k650M, 131072);
  const std::string text = train::out_of_memory_text("out of device memory: 1.5 GiB wanted for x, 1.0 GiB free",
                                                     {.config = config}, train::usual_cards()[1]);
  INFO(text);
  CHECK_THAT(text, ContainsSubstring("1.5 GiB wanted for x, 1.0 GiB free\n"));
  CHECK_THAT(text, ContainsSubstring("data.tokens_per_batch: 131072, train.recompute: none"));
  CHECK_THAT(text, ContainsSubstring("queries, keys, values"));
  CHECK_THAT(text, ContainsSubstring("Into H100 80 GB (79.1 GiB) would fit"));
  for (const std::string mode : {"none", "selective", "full"})
    CHECK_THAT(text, ContainsSubstring(" with train.recompute: " + mode));
  CHECK_THAT(text, !ContainsSubstring("other programs"));

  CHECK_THAT(train::out_of_memory_text("x", {.config = config}, h200()), ContainsSubstring("other programs"));
  config.model.layers = 600;
  CHECK_THAT(train::out_of_memory_text("x", {.config = config}, h200()), ContainsSubstring("does not fit with any"));
  config = published(k650M, 1 << 20);
  const std::string evaluation =
      train::out_of_memory_text("x", {.config = config, .use = Use::kEvaluation}, train::usual_cards()[0]);
  CHECK_THAT(evaluation, ContainsSubstring("would fit") && !ContainsSubstring("with train.recompute"));
}

TEST_CASE("errors of every allocator are told from others") {
  const auto reason = [](const auto& error) { return train::out_of_memory_reason(error); };
  CHECK(reason(device::OutOfMemory("out of device memory: 7 bytes wanted for tests", 7)) ==
        "out of device memory: 7 bytes wanted for tests");
  CHECK_THAT(reason(std::bad_alloc()), ContainsSubstring("out of memory"));
  const std::string torch =
      "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 139.80 GiB of which 1.20 GiB is "
      "free. Including non-PyTorch memory, this process has 138.00 GiB memory in use.";
  const std::string expected =
      "out of device memory: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 139.80 GiB "
      "of which 1.20 GiB is free.";
  CHECK(reason(c10::OutOfMemoryError(c10::SourceLocation{__func__, __FILE__, __LINE__}, torch)) == expected);
  // As the choice among attention backends passes it on.
  CHECK(reason(DeviceError("no attention backend can be timed: failed: " + torch)) ==
        "out of device memory: no attention backend can be timed: failed: " + expected.substr(22));
  try {
    at::empty({int64_t{1} << 60}, at::kByte);
    FAIL("an exabyte");
  } catch (const std::exception& error) {
    CHECK_THAT(reason(error), ContainsSubstring("out of memory: can't allocate memory: you tried to allocate") &&
                                  ContainsSubstring("1152921504606846976 bytes."));
  }
  CHECK(reason(DeviceError("no kernel for this")).empty());
  CHECK(reason(std::runtime_error("memory of things past")).empty());
}

TEST_CASE("a run that runs out of memory ends with the table, others with their own error") {
  const train::RunConfig config = small_run();
  const train::MemoryUser user{.config = config};
  CHECK(train::with_memory_report(user, [] { return 3; }) == 3);
  CHECK_THROWS_WITH(train::with_memory_report(user, []() -> int { throw ConfigError("no"); }), "no");
  const auto fails = []() -> int { throw device::OutOfMemory("out of device memory: 7 bytes", 7); };
  CHECK_THROWS_AS(train::with_memory_report(user, fails), DeviceError);
  CHECK_THROWS_WITH(train::with_memory_report(user, fails),
                    ContainsSubstring("7 bytes\nPredicted") && ContainsSubstring("layer inputs"));
}
