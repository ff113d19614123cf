// Delayed scaling step by step.
#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>

#include "base/error.h"
#include "base/philox.h"
#include "precision/amax_history.h"
#include "support/catch.h"

namespace esm::test {
namespace {

using kernels::AmaxChoice;
using kernels::AmaxTables;
using kernels::DelayedRule;
using namespace precision;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct State {
  std::vector<float> history, pending, scale, inverse;
  std::vector<int32_t> nonfinite;
  int64_t closed = 0;
  std::vector<DelayedRule> rules;
  int64_t steps;

  State(int64_t steps_, std::vector<DelayedRule> rules_) : rules(std::move(rules_)), steps(steps_) {
    const size_t n = rules.size();
    history.assign(n * static_cast<size_t>(steps), 0.0f);
    pending.assign(n, 0.0f);
    scale.assign(n, 0.0f);
    inverse.assign(kernels::kInverseStride * n, 0.0f);
    nonfinite.assign(n, 0);
  }
  AmaxTables tables() {
    return {.tensors = static_cast<int64_t>(rules.size()),
            .steps = steps,
            .history = history.data(),
            .pending = pending.data(),
            .scale = scale.data(),
            .inverse = inverse.data(),
            .nonfinite = nonfinite.data(),
            .closed = &closed};
  }
  /// One step of tensor 0, the only one.
  float step(float amax) {
    record_amax(tables(), 0, amax);
    close_step(tables(), rules, closed);
    return scale[0];
  }
};

DelayedRule rule(AmaxChoice choice, int margin = 0) { return {.choice = choice, .margin = margin}; }

}  // namespace

TEST_CASE("a history starts without a scale: the first step measures, the second has the first one's amax") {
  State s(4, {rule(AmaxChoice::kMax)});
  CHECK(needs_measuring(s.tables(), 0));
  CHECK(measured_scale(s.rules[0], 3.0f) == 128.0f);  // 448 / 3 = 149
  CHECK(measured_scale(rule(AmaxChoice::kMax, 2), 3.0f) == 32.0f);
  CHECK(measured_scale(s.rules[0], 0.0f) == 1.0f);
  CHECK(s.step(3.0f) == 128.0f);
  CHECK(s.inverse[0] == 1.0f / 128);
  CHECK(!needs_measuring(s.tables(), 0));
  CHECK(s.pending[0] == 0.0f);
}

TEST_CASE("a tensor of zeros has scale 1 and no need to be measured again") {
  State s(4, {rule(AmaxChoice::kMax, 3)});
  CHECK(s.step(0.0f) == 1.0f);
  CHECK(!needs_measuring(s.tables(), 0));
}

TEST_CASE("max: the greatest of the window decides until it falls out; most_recent: the last step") {
  State max(3, {rule(AmaxChoice::kMax)}), recent(3, {rule(AmaxChoice::kMostRecent)});
  const float amax[] = {1, 100, 2, 3, 4, 0.5f, 0.5f, 0.5f};
  const float of_max[] = {256, 4, 4, 4, 64, 64, 64, 512};
  const float of_recent[] = {256, 4, 128, 128, 64, 512, 512, 512};
  for (int i = 0; i < 8; ++i) {
    INFO(i);
    CHECK(max.step(amax[i]) == of_max[i]);
    CHECK(recent.step(amax[i]) == of_recent[i]);
  }
}

TEST_CASE("histories wrap around as a queue does, for any length") {
  const int64_t steps = GENERATE(1, 2, 7, 1024);
  const int margin = GENERATE(0, 2);
  const auto choice = GENERATE(AmaxChoice::kMax, AmaxChoice::kMostRecent);
  State s(steps, {rule(choice, margin)});
  std::deque<float> window;
  for (uint64_t i = 0; i < 2600; ++i) {
    const PhiloxResult words = philox(3, RandomStream::kSynthetic, i, 0);
    const float amax =
        std::ldexp(1.0f + static_cast<float>(words.v[0] >> 9) * 0x1p-23f, static_cast<int>(words.v[1] % 40) - 20);
    window.push_back(amax);
    if (static_cast<int64_t>(window.size()) > steps) window.pop_front();
    const float top = choice == AmaxChoice::kMax ? *std::max_element(window.begin(), window.end()) : amax;
    const double scale = std::exp2(std::floor(std::log2(448.0 / static_cast<double>(top)))) * std::exp2(-margin);
    REQUIRE(static_cast<double>(s.step(amax)) == scale);
  }
}

TEST_CASE("each tensor has its own history, rule and format") {
  State s(2, {{.greatest = kernels::kMaxE4M3}, {.greatest = kernels::kMaxE5M2, .margin = 1}});
  record_amax(s.tables(), 0, 448.0f);
  record_amax(s.tables(), 1, 448.0f);
  close_step(s.tables(), s.rules, 0);
  CHECK(s.scale == std::vector<float>{1.0f, 64.0f});
  record_amax(s.tables(), 1, 28672.0f);
  close_step(s.tables(), s.rules, 1);
  CHECK(s.scale == std::vector<float>{1.0f, 1.0f});
  CHECK(s.history == std::vector<float>{448.0f, 0.0f, 448.0f, 28672.0f});
}

TEST_CASE("work that is done again does not enter a history twice, and a step is closed once") {
  State once(3, {rule(AmaxChoice::kMax)}), twice(3, {rule(AmaxChoice::kMax)});
  for (const float amax : {5.0f, 2.0f, 9.0f, 1.0f}) {
    record_amax(once.tables(), 0, amax);
    record_amax(once.tables(), 0, amax / 2);  // another micro-batch
    for (int i = 0; i < 2; ++i) {
      record_amax(twice.tables(), 0, amax / 2);
      record_amax(twice.tables(), 0, amax);
    }
    close_step(once.tables(), once.rules, once.closed);
    close_step(twice.tables(), twice.rules, twice.closed);
    CHECK(once.history == twice.history);
    CHECK(once.scale == twice.scale);
  }
  const std::vector<float> before = once.history;
  CHECK_THROWS_AS(close_step(once.tables(), once.rules, once.closed - 1), InternalError);
  CHECK_THROWS_AS(close_step(once.tables(), once.rules, once.closed + 1), InternalError);
  CHECK(once.history == before);
}

TEST_CASE("an amax that is not finite keeps the last scale, stays out of the window and is counted") {
  for (const float bad : {kInfinity, kNan}) {
    State s(3, {rule(AmaxChoice::kMax)});
    CHECK(s.step(bad) == 0.0f);  // none yet: the next step measures again
    CHECK(needs_measuring(s.tables(), 0));
    CHECK(s.step(2.0f) == 128.0f);
    CHECK(s.step(bad) == 128.0f);
    CHECK(s.nonfinite[0] == 2);
    CHECK(s.pending[0] == 0.0f);
    for (const float entry : s.history) CHECK(std::isfinite(entry));
    CHECK(s.step(1.0f) == 128.0f);  // window 2, 2 (again), 1
    CHECK(s.step(1.0f) == 128.0f);
    CHECK(s.step(1.0f) == 256.0f);
    CHECK(s.nonfinite[0] == 2);
  }
}

TEST_CASE("within a step NaN and infinity win over what is finite, in any order") {
  State s(2, {rule(AmaxChoice::kMax)});
  for (const float x : {1.0f, -3.0f, 2.0f}) record_amax(s.tables(), 0, x);
  CHECK(s.pending[0] == 3.0f);
  record_amax(s.tables(), 0, -kInfinity);
  record_amax(s.tables(), 0, 4.0f);
  CHECK(s.pending[0] == kInfinity);
  record_amax(s.tables(), 0, kNan);
  record_amax(s.tables(), 0, kInfinity);
  CHECK(std::isnan(s.pending[0]));
}

TEST_CASE("a state that is copied goes on as the original does") {
  State s(5, {rule(AmaxChoice::kMax)});
  for (int i = 0; i < 7; ++i) s.step(static_cast<float>(1 + i * 37 % 11));
  State copy = s;
  for (int i = 0; i < 12; ++i) {
    const auto amax = static_cast<float>(1 + i * 5 % 7);
    CHECK(s.step(amax) == copy.step(amax));
  }
  CHECK(s.history == copy.history);
}

TEST_CASE("tensors whose amax was not finite are named with their counts since the last report") {
  const std::vector<std::string> names{"layers.1.qkv.x", "layers.1.fc1.x", "layers.2.qkv.dy"};
  const std::vector<int32_t> before{1, 0, 2}, now{3, 0, 3};
  CHECK(text(new_nonfinite(before, now, names)) ==
        "amax not finite, last finite scale kept: layers.1.qkv.x (2), layers.2.qkv.dy (1)");
  CHECK(new_nonfinite({}, now, names).size() == 2);
  CHECK(text(new_nonfinite(now, now, names)).empty());
  const std::vector<std::string> many(11, "t");
  CHECK(text(new_nonfinite({}, std::vector<int32_t>(11, 1), many)) ==
        "amax not finite, last finite scale kept: t (1), t (1), t (1), t (1), t (1), t (1), t (1), t (1) and 3 more");
}

}  // namespace esm::test
