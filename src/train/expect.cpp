#include "train/expect.h"

#include <fmt/core.h>

#include <limits>

namespace esm::train {

std::string unmet_expectations(const ExpectSection& expect, const TrainState& state) {
  std::string unmet;
  const auto demand = [&](const char* key, const char* relation, double bound, double found, bool holds) {
    if (!holds)
      unmet += fmt::format("{}expect.{}: {} {} was expected, found {:.6g}", unmet.empty() ? "" : "\n", key, relation,
                           bound, found);
  };
  // A NaN fails every comparison, as it should.
  if (expect.valid_loss_below.has_value()) {
    const double found = state.valid_loss.value_or(std::numeric_limits<double>::quiet_NaN());
    demand("valid_loss_below", "a loss below", *expect.valid_loss_below, found, found < *expect.valid_loss_below);
  }
  if (expect.train_loss_below.has_value()) {
    const double found = state.recent_loss_mean();
    demand("train_loss_below", "a mean loss below", *expect.train_loss_below, found, found < *expect.train_loss_below);
  }
  if (expect.tokens_per_s_above.has_value()) {
    const double found = state.step_seconds > 0 ? static_cast<double>(state.tokens) / state.step_seconds : 0.0;
    demand("tokens_per_s_above", "a rate above", *expect.tokens_per_s_above, found, found > *expect.tokens_per_s_above);
  }
  return unmet;
}

}  // namespace esm::train
