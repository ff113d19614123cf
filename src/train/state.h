// The numbers of a run that are neither tensors nor the data position; they travel in the checkpoint's manifest.
#pragma once
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace esm::train {

struct TrainState {
  int64_t step = 0;     // steps done, skipped ones included
  int64_t updates = 0;  // optimizer updates done
  int64_t tokens = 0;   // real tokens trained on
  int64_t skipped = 0;  // steps that left the weights alone because something was not finite
  int64_t skipped_in_a_row = 0;
  int64_t empty = 0;                 // steps in which nothing was scored
  double step_seconds = 0;           // wall time of all steps
  bool pending_eval = false;         // stopped before the validation that is due after `step`
  bool stopped_early = false;        // patience ran out: the run is over
  std::optional<double> valid_loss;  // last validation of the monitored set
  int64_t valid_step = 0;            // the step after which that was
  std::optional<double> best_loss;   // lowest so far
  int64_t best_step = 0;
  int64_t evals_without_improvement = 0;
  std::vector<double> recent_losses;  // of the last kRecent steps with a loss

  static constexpr size_t kRecent = 10;
  void remember_loss(double loss);
  /// NaN when there was none.
  double recent_loss_mean() const;

  std::string to_json() const;
  /// Throws CheckpointError naming the member that is missing or of the wrong type.
  static TrainState from_json(const std::string& text);

  bool operator==(const TrainState&) const = default;
};

}  // namespace esm::train
