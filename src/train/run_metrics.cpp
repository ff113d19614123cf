#include "train/run_metrics.h"

#include "train/step_rows.h"

namespace esm::train {

RunMetrics::RunMetrics(const RunFolder& folder, const RunSection& config, int64_t keep_through_step,
                       bool keep_validation)
    : metrics_(folder.metrics(), keep_through_step, keep_validation), statistics_path_(folder.fp8_statistics()) {
  cut_json_rows(statistics_path_, keep_through_step);
  if (config.csv)
    csv_.emplace(folder.csv(), keep_through_step);
  else
    cut_metrics_csv(folder.csv(), keep_through_step);
  if (config.tensorboard)
    tensorboard_.emplace(folder.tensorboard(), keep_through_step);
  else
    cut_event_files(folder.tensorboard(), keep_through_step);
}

void RunMetrics::append(const StepMetrics& row) {
  metrics_.append(row);
  if (csv_.has_value()) csv_->append(row);
  if (tensorboard_.has_value()) tensorboard_->append(row);
}

void RunMetrics::append(const ValidationRow& row) {
  metrics_.append(row);
  if (tensorboard_.has_value()) tensorboard_->append(row);
}

void RunMetrics::append(const StepStatistics& row) {
  // Cut at the start; all rows there are by now are to be kept.
  if (!statistics_.has_value()) statistics_.emplace(statistics_path_, row.step - 1);
  statistics_->append(row);
  if (tensorboard_.has_value()) tensorboard_->append(row);
}

}  // namespace esm::train
