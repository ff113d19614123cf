// `expect:` keys: what a smoke run promises at its end.
#pragma once
#include <string>

#include "train/run_config.h"
#include "train/state.h"

namespace esm::train {

/// A line for each expectation that does not hold ("" when all hold): key, bound, value found.
std::string unmet_expectations(const ExpectSection& expect, const TrainState& state);

}  // namespace esm::train
