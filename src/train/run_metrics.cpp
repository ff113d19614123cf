#include "train/run_metrics.h"

#include <utility>

#include "base/check.h"
#include "base/log.h"
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

template <class... Writes>
void RunMetrics::try_each(const Writes&... writes) {
  std::string error;
  const auto attempt = [&](const auto& write) {
    try {
      write();
    } catch (const DataError& e) {
      error = e.what();
    }
  };
  (attempt(writes), ...);
  const bool waited = std::exchange(waits_, !error.empty());
  if (waits_ && !waited) log::warn("training goes on, rows of metrics wait until they can be written: {}", error);
  if (!waits_ && waited) log::info("rows of metrics are written again, with those that had to wait");
}

void RunMetrics::append(const StepMetrics& row) {
  try_each([&] { metrics_.append(row); },
           [&] {
             if (csv_.has_value()) csv_->append(row);
           },
           [&] {
             if (tensorboard_.has_value()) tensorboard_->append(row);
           });
}

void RunMetrics::append(const ValidationRow& row) {
  try_each([&] { metrics_.append(row); },
           [&] {
             if (tensorboard_.has_value()) tensorboard_->append(row);
           });
}

void RunMetrics::append(const StepStatistics& row) {
  try_each(
      [&] {
        // Cut at the start; all rows there are by now are to be kept.
        if (!statistics_.has_value()) statistics_.emplace(statistics_path_, row.step - 1);
        statistics_->append(row);
      },
      [&] {
        if (tensorboard_.has_value()) tensorboard_->append(row);
      });
}

void RunMetrics::finish() {
  if (!waits_) return;
  try_each([&] { metrics_.flush(); },
           [&] {
             if (csv_.has_value()) csv_->flush();
           },
           [&] {
             if (tensorboard_.has_value()) tensorboard_->flush();
           },
           [&] {
             if (statistics_.has_value()) statistics_->flush();
           });
  if (waits_) log::error("the last rows of metrics were never written");
}

}  // namespace esm::train
