// Every file that a run writes rows of its steps to: metrics.jsonl always, metrics.csv and tensorboard/ when asked for,
// fp8.jsonl once there are FP8 statistics.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "train/fp8_statistics.h"
#include "train/metrics.h"
#include "train/metrics_csv.h"
#include "train/run_config.h"
#include "train/run_folder.h"
#include "train/tensorboard.h"

namespace esm::train {

class RunMetrics {
 public:
  /// Opens the files for a run that goes on after `keep_through_step` (0: from the start). Rows of later steps go,
  /// those of files not written any more too; of `keep_through_step` itself go the validations unless
  /// `keep_validation`. Throws DataError.
  RunMetrics(const RunFolder& folder, const RunSection& config, int64_t keep_through_step, bool keep_validation);

  /// Rows that cannot be written now (a full disk) wait for the next call: training goes on, the log says so once.
  void append(const StepMetrics& row);
  void append(const ValidationRow& row);
  void append(const StepStatistics& row);
  /// At the end of a run: the last try.
  void finish();

 private:
  /// Calls each of `writes`; false if one of them could not write.
  template <class... Writes>
  void try_each(const Writes&... writes);

  MetricsLog metrics_;
  std::optional<MetricsCsv> csv_;
  std::optional<TensorBoardLog> tensorboard_;
  std::string statistics_path_;
  std::optional<StatisticsLog> statistics_;
  bool waits_ = false;  // a row could not be written
};

}  // namespace esm::train
