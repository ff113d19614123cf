#include "train/state.h"

#include <nlohmann/json.hpp>
#include <numeric>

#include "base/check.h"
#include "base/json_limits.h"
#include "base/json_writer.h"

namespace esm::train {
namespace {

// One list of members for writing and reading.
template <class State, class Visit>
void each_member(State& s, Visit visit) {
  visit("step", s.step);
  visit("updates", s.updates);
  visit("tokens", s.tokens);
  visit("skipped", s.skipped);
  visit("skipped_in_a_row", s.skipped_in_a_row);
  visit("empty", s.empty);
  visit("step_seconds", s.step_seconds);
  visit("pending_eval", s.pending_eval);
  visit("stopped_early", s.stopped_early);
  visit("valid_loss", s.valid_loss);
  visit("valid_step", s.valid_step);
  visit("best_loss", s.best_loss);
  visit("best_step", s.best_step);
  visit("evals_without_improvement", s.evals_without_improvement);
  visit("recent_losses", s.recent_losses);
}

}  // namespace

void TrainState::remember_loss(double loss) {
  recent_losses.push_back(loss);
  if (recent_losses.size() > kRecent) recent_losses.erase(recent_losses.begin());
}

double TrainState::recent_loss_mean() const {
  if (recent_losses.empty()) return std::numeric_limits<double>::quiet_NaN();
  return std::accumulate(recent_losses.begin(), recent_losses.end(), 0.0) / static_cast<double>(recent_losses.size());
}

std::string TrainState::to_json() const {
  JsonWriter json;
  json.begin_object();
  each_member(*this, [&](const char* name, const auto& value) {
    if constexpr (requires { value.has_value(); }) {
      if (value.has_value()) json.field(name, *value);
    } else {
      json.field(name, value);
    }
  });
  return json.end_object().text();
}

TrainState TrainState::from_json(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) fail<CheckpointError>("the counters in the checkpoint are not a JSON object");
  TrainState state;
  each_member(state, [&](const char* name, auto& value) {
    try {
      if constexpr (requires { value.has_value(); }) {
        // A loss that is not finite has no JSON but null.
        if (json.contains(name))
          value =
              json.at(name).is_null() ? std::numeric_limits<double>::quiet_NaN() : json.at(name).template get<double>();
      } else if constexpr (std::is_same_v<std::decay_t<decltype(value)>, int64_t>) {
        const std::optional<int64_t> count = json_integer(json.at(name));
        if (!count.has_value() || *count < 0)
          fail<CheckpointError>("the counters in the checkpoint: '{}' is no count", name);
        value = *count;
      } else {
        json.at(name).get_to(value);
      }
    } catch (const nlohmann::json::exception&) {
      fail<CheckpointError>("the counters in the checkpoint lack '{}' or have it with another type", name);
    }
  });
  return state;
}

}  // namespace esm::train
