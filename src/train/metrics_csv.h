// RUN/metrics.csv: the rows of the steps for spreadsheets (RFC 4180: commas, CR LF), with the columns of
// metrics.jsonl. A figure that is not finite is an empty field.
#pragma once
#include <string>

#include "base/files.h"
#include "train/metrics.h"

namespace esm::train {

class MetricsCsv {
 public:
  /// Opens `path` for appending, with a line of column names if it is new. Rows of steps after `keep_through_step` are
  /// cut first, and so is a row torn by a kill. Throws DataError, also when the file has other columns.
  MetricsCsv(const std::string& path, int64_t keep_through_step);
  void append(const StepMetrics& row);
  void flush() { file_.flush(); }

 private:
  LineAppender file_;
};

/// Throws DataError when the file at `path` has other columns.
void check_metrics_csv(const std::string& path);
/// That cut, for a run that does not write the file any more; a file with other columns is left alone. Throws
/// DataError.
void cut_metrics_csv(const std::string& path, int64_t keep_through_step);

}  // namespace esm::train
