#include "train/metrics.h"

#include "base/error.h"
#include "support/catch.h"
#include "train/state.h"

using namespace esm;
using namespace esm::train;

namespace {
StepMetrics row(int64_t step) {
  StepMetrics m;
  m.step = step;
  m.loss = 1.0 / 3;
  m.tokens = 100;
  m.padded_tokens = 128;
  m.seconds = 0.5;
  return m;
}
size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}
}  // namespace

TEST_CASE("a resume cuts later rows and torn lines, so each step stands once") {
  const ScratchFolder scratch("esm-metrics");
  const std::string path = scratch.path() + "/metrics.jsonl";
  {
    MetricsLog log(path, 0, true);
    for (int64_t step = 1; step <= 5; ++step) log.append(row(step));
    log.append({.step = 3, .sets = {{"main", EvalMetrics{.loss = 2.5}}}, .drawn = {}});
  }
  LineAppender(path).append(R"({"step": 6, "lo)");
  { MetricsLog log(path, 3, true); }
  CHECK(count(read_text_file(path), "\"loss\": 0.33333333333333331") == 3);
  CHECK(count(read_text_file(path), "valid") == 1);
  { MetricsLog log(path, 3, false); }
  CHECK(count(read_text_file(path), "valid") == 0);
  {
    MetricsLog log(path, 3, false);
    log.append(row(4));
  }
  CHECK(count(read_text_file(path), "\"step\": 4") == 1);
  CHECK(count(read_text_file(path), "\"tokens_per_s\": 200") == 4);
}

TEST_CASE("state survives JSON, and damage is named") {
  TrainState state;
  state.step = 12;
  state.best_loss = 0.1;
  state.pending_eval = true;
  for (int i = 0; i < 15; ++i) state.remember_loss(i / 7.0);
  CHECK(state.recent_losses.size() == TrainState::kRecent);
  CHECK(TrainState::from_json(state.to_json()) == state);
  CHECK_FALSE(TrainState::from_json(state.to_json()).valid_loss.has_value());
  for (const double loss : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    state.valid_loss = loss;  // nothing was scored, or the weights have gone wild
    const TrainState again = TrainState::from_json(state.to_json());
    REQUIRE(again.valid_loss.has_value());
    CHECK_FALSE(std::isfinite(*again.valid_loss));
    CHECK(again.best_loss == state.best_loss);
  }
  CHECK_THROWS_AS(TrainState::from_json("[]"), CheckpointError);
  CHECK_THROWS_WITH(TrainState::from_json("{\"step\": 1}"), ContainsSubstring("updates"));
  for (const char* no_count : {"-1", "1e300", "1.5", "true", "18446744073709551615"}) {
    CAPTURE(no_count);
    std::string text = state.to_json();
    text.replace(text.find("\"tokens\""), text.find(',', text.find("\"tokens\"")) - text.find("\"tokens\""),
                 fmt::format("\"tokens\":{}", no_count));
    CHECK_THROWS_WITH(TrainState::from_json(text), ContainsSubstring("'tokens' is no count"));
  }
}
