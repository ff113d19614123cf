// Scales of whole tensors over steps: measured at first, then by history; what evaluations and values that are not
// finite leave of them.
#include "ops/scales.h"

#include <cmath>
#include <limits>

#include "support/catch.h"
#include "support/torch.h"

namespace esm::test {
namespace {

using kernels::AmaxChoice;
using precision::Timing;
using Pass = ops::Scales::Pass;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
const Context kContext{.threads = 1};

/// Some tensors in E4M3 that are quantized on the CPU.
class Tensors {
 public:
  explicit Tensors(std::vector<Timing> timings, int64_t history_steps = 4, AmaxChoice choice = AmaxChoice::kMax,
                   int margin = 0)
      : scales(kContext, history_steps), timings_(std::move(timings)), ws_(kContext) {
    for (size_t i = 0; i < timings_.size(); ++i)
      CHECK(scales.add("tensor" + std::to_string(i), {.choice = choice, .margin = margin}, timings_[i]) ==
            static_cast<int64_t>(i));
    scales.allocate();
  }

  /// Quantizes a matrix with this amax; the greatest value of the codes.
  float quantize(int64_t index, float amax) {
    const at::Tensor x = at::full({2, 3}, amax / 8, at::kFloat), y = at::empty({2, 3}, at::kFloat);
    x.view({-1}).select(0, 4).fill_(-amax);
    ops::GemmOperand operand(x);
    operand.format = {precision::Format::kE4M3, precision::Grouping::kTensor, timings_[static_cast<size_t>(index)]};
    operand.emulated = true;
    operand.codes = y;
    operand.scale = scales.at(index);
    ops::quantize_operand(ws_, operand);
    return y.abs().max().item<float>();
  }

  /// A micro-batch: amax of each tensor.
  void micro_batch(const std::vector<float>& amax, Pass pass = Pass::kTraining) {
    scales.begin_micro_batch(pass);
    for (size_t i = 0; i < amax.size(); ++i) quantize(static_cast<int64_t>(i), amax[i]);
    if (pass == Pass::kTraining) scales.end_micro_batch();
  }

  /// A step of micro-batches.
  void step(const std::vector<std::vector<float>>& micro_batches) {
    scales.begin_step();
    for (const auto& amax : micro_batches) micro_batch(amax);
    scales.close_step();
  }
  void step(float amax) { step({{amax}}); }

  double scale(int64_t index = 0) const { return values(scales.scale())[static_cast<size_t>(index)]; }
  std::vector<double> nonfinite() const { return values(scales.nonfinite()); }

  ops::Scales scales;

 private:
  std::vector<Timing> timings_;
  ops::Workspace ws_;
};

/// Greatest power of two that keeps amax * 2^margin within 448.
double scale_of(double amax, int margin = 0) { return std::exp2(std::floor(std::log2(448 / amax)) - margin); }

std::vector<std::vector<uint8_t>> state_bytes(const ops::Scales& scales) {
  std::vector<std::vector<uint8_t>> result;
  for (const auto& [name, tensor] : scales.state()) result.push_back(bytes(tensor));
  return result;
}

}  // namespace

TEST_CASE("delayed scales are measured in the first step; then the past decides, and what exceeds it saturates") {
  Tensors t({Timing::kDelayed}, 3);
  CHECK(t.scales.measuring());
  t.scales.begin_step();
  t.scales.begin_micro_batch(Pass::kTraining);
  CHECK(t.quantize(0, 3) == 3);
  CHECK(t.scale() == scale_of(3));
  t.scales.end_micro_batch();
  t.scales.close_step();
  CHECK_FALSE(t.scales.measuring());
  CHECK(t.scale() == scale_of(3));

  t.scales.begin_step();
  t.scales.begin_micro_batch(Pass::kTraining);
  CHECK(t.quantize(0, 100) == 448 / scale_of(3));
  CHECK(t.scale() == scale_of(3));
  t.scales.end_micro_batch();
  CHECK(values(t.scales.pending())[0] == 100);
  t.scales.close_step();
  CHECK(t.scale() == scale_of(100));
  CHECK(values(t.scales.pending())[0] == 0);

  // 100 decides as long as it is among the last three steps.
  t.step(1);
  t.step(2);
  CHECK(t.scale() == scale_of(100));
  t.step(1);
  CHECK(t.scale() == scale_of(2));
  CHECK(t.nonfinite() == std::vector<double>{0});
}

TEST_CASE("most_recent forgets at once, margin leaves octaves free") {
  Tensors recent({Timing::kDelayed}, 8, AmaxChoice::kMostRecent), roomy({Timing::kDelayed}, 8, AmaxChoice::kMax, 2);
  for (const float amax : {3.0f, 100.0f, 0.7f}) {
    recent.step(amax);
    CHECK(recent.scale() == scale_of(amax));
    roomy.step(amax);
  }
  CHECK(roomy.scale() == scale_of(100, 2));
  Tensors measured({Timing::kDelayed}, 8, AmaxChoice::kMax, 3);
  measured.micro_batch({5});
  CHECK(measured.scale() == scale_of(5, 3));
}

TEST_CASE("the amax of a step is the greatest of its micro-batches, for both timings") {
  Tensors t({Timing::kDelayed, Timing::kCurrent});
  const std::vector<std::vector<float>> steps{{5, 0.5f}, {2, 7}, {0.1f, 3}};
  t.step(steps);
  CHECK(t.scale(0) == scale_of(5));
  t.step({{1, 1}});
  t.scales.begin_step();
  for (const auto& amax : steps) t.micro_batch(amax);
  CHECK(values(t.scales.pending()) == std::vector<double>{5, 7});
}

TEST_CASE("a tensor that is quantized once in a step has its amax in the step, whatever follows") {
  const Timing timing = GENERATE(Timing::kDelayed, Timing::kCurrent);
  Tensors t({timing, timing});
  t.scales.begin_step();
  t.micro_batch({5, 6});
  t.scales.begin_micro_batch(Pass::kTraining);
  t.quantize(1, 2);
  t.scales.end_micro_batch();
  CHECK(values(t.scales.pending()) == std::vector<double>{5, 6});
  t.scales.close_step();
  CHECK(t.scale(0) == scale_of(5));
}

TEST_CASE("current scales are those of the micro-batch itself") {
  Tensors t({Timing::kCurrent});
  for (const float amax : {5.0f, 0.5f, 300.0f, 1e-6f}) {
    t.scales.begin_step();
    for (const float factor : {1.0f, 16.0f, 0.25f}) {
      t.scales.begin_micro_batch(Pass::kTraining);
      CHECK(t.quantize(0, factor * amax) == Approx(factor * amax).epsilon(1.0 / 16));
      CHECK(t.scale() == scale_of(static_cast<double>(factor * amax)));
      t.scales.end_micro_batch();
    }
    t.scales.close_step();
  }
}

TEST_CASE("evaluations leave no trace, before the first step, between steps and within one") {
  const Timing timing = GENERATE(Timing::kDelayed, Timing::kCurrent);
  const auto run = [&](bool evaluates) {
    Tensors t({timing, Timing::kDelayed});
    const auto evaluate = [&] {
      if (!evaluates) return;
      t.micro_batch({1000, 0.01f}, Pass::kEvaluation);
      t.micro_batch({kInfinity, kNan}, Pass::kEvaluation);
    };
    for (const float amax : {3.0f, 0.4f}) {
      evaluate();
      t.scales.begin_step();
      t.micro_batch({amax, 2 * amax});
      evaluate();
      t.micro_batch({amax / 4, amax / 2});
      CHECK(values(t.scales.pending()) == std::vector<double>{amax, 2 * amax});
      t.scales.close_step();
    }
    return state_bytes(t.scales);
  };
  CHECK(run(true) == run(false));
}

TEST_CASE("an evaluation before any step measures every batch on its own") {
  Tensors t({Timing::kDelayed});
  for (const float amax : {100.0f, 3.0f}) {
    t.micro_batch({amax}, Pass::kEvaluation);
    CHECK(t.scale() == scale_of(static_cast<double>(amax)));
  }
  CHECK(t.scales.measuring());
}

TEST_CASE("amax values that are not finite keep the last scale and are counted where they are") {
  const auto bad = GENERATE(Catch::Generators::values<float>({kInfinity, -kInfinity, kNan}));
  Tensors t({Timing::kDelayed, Timing::kCurrent, Timing::kDelayed});
  t.step({{3, 3, 3}});
  t.step({{bad, bad, 1}});
  CHECK(t.nonfinite() == std::vector<double>{1, 1, 0});
  for (const int64_t i : {0, 1, 2}) CHECK(t.scale(i) == scale_of(3));
  t.scales.begin_micro_batch(Pass::kTraining);
  CHECK(t.quantize(1, kInfinity) == 448 / scale_of(3));
  // In one of several micro-batches, whichever.
  t.step({{1, bad, 1}, {1, 1, 1}});
  t.step({{1, 1, 1}, {bad, bad, 1}});
  CHECK(t.nonfinite() == std::vector<double>{2, 3, 0});
  // An infinity does not stand in the history.
  t.step({{100, 100, 1}});
  CHECK(t.scale(0) == scale_of(100));
  CHECK(t.scale(2) == scale_of(1));
}

TEST_CASE("the first amax of all is not finite: a scale of 1, until one is") {
  Tensors t({Timing::kDelayed});
  t.step(kNan);
  CHECK(t.scale() == 1);
  CHECK(t.nonfinite() == std::vector<double>{1});
  t.step(3);
  CHECK(t.scale() == scale_of(3));
}

TEST_CASE("what state() holds goes on like the original") {
  const auto some_steps = [](Tensors& t, float first) {
    for (float amax = first; amax < 40 * first; amax *= 3) t.step({{amax, 1 / amax}, {2, amax == first ? kNan : amax}});
  };
  Tensors a({Timing::kDelayed, Timing::kCurrent}, 3), b({Timing::kDelayed, Timing::kCurrent}, 3);
  some_steps(a, 0.1f);
  b.scales.begin_step();
  b.micro_batch({77, 1e4f});  // what it held before does not matter
  const auto from = a.scales.state(), to = b.scales.state();
  REQUIRE(from.size() == to.size());
  for (size_t i = 0; i < from.size(); ++i) {
    CHECK(from[i].first == to[i].first);
    to[i].second.copy_(from[i].second);
  }
  CHECK(b.scales.measuring());
  b.scales.state_restored();
  CHECK_FALSE(b.scales.measuring());
  CHECK(values(b.scales.pending()) == std::vector<double>{0, 0});
  for (Tensors* t : {&a, &b}) some_steps(*t, 5);
  CHECK(state_bytes(a.scales) == state_bytes(b.scales));
  CHECK(a.nonfinite() == std::vector<double>{0, 2});
}

TEST_CASE("without delayed scales no history is kept; without any scales there is nothing") {
  Tensors current({Timing::kCurrent}, 1024), none({});
  CHECK(current.scales.memory().bytes < 100);
  CHECK(none.scales.size() == 0);
  CHECK(none.scales.state().empty());
  CHECK(none.scales.memory().bytes == 0);
  none.step({{}, {}});
  none.micro_batch({}, Pass::kEvaluation);
  none.scales.state_restored();
}

}  // namespace esm::test
