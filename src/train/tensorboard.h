// RUN/tensorboard: scalars as TensorBoard reads them, without its libraries. A file is a sequence of TFRecords, each an
// Event of protocol buffers (tensorflow/core/lib/io/record_writer.h, tensorflow/core/util/event.proto).
//
// Tags: train/loss, train/grad_norm, train/lr, train/tokens_per_s; valid/NAME/loss, .../perplexity, .../accuracy;
// drawn/NAME/tokens, .../epochs;
// fp8/LAYER.TENSOR/amax, .../scale, .../underflow, .../overflow; fp8/LAYER/mean, .../variance, .../grad_norm.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/files.h"
#include "train/fp8_statistics.h"
#include "train/metrics.h"

namespace esm::train {

class TensorBoardLog {
 public:
  /// Starts a file in `folder` that sorts behind all that are there; from those, events of steps after
  /// `keep_through_step` are cut first, and a running TensorBoard is told to forget them. (A validation of
  /// `keep_through_step` itself that is repeated stands twice, with the same values.) Throws DataError.
  TensorBoardLog(const std::string& folder, int64_t keep_through_step);

  void append(const StepMetrics& row);
  void append(const ValidationRow& row);
  void append(const StepStatistics& row);
  void flush() { file_.flush(); }

 private:
  FileAppender file_;
};

/// That cut, for a run that writes no such files any more. What is torn or damaged goes too: readers stop there anyhow.
/// Throws DataError.
void cut_event_files(const std::string& folder, int64_t keep_through_step);

struct Scalar {
  std::string tag;
  double value = 0;  // written in single precision
};

/// What an Event can hold here; encoded when set.
struct Event {
  double wall_time = 0;  // seconds since 1970
  int64_t step = 0;
  std::string_view file_version;
  std::span<const Scalar> scalars;
  bool session_start = false;  // readers forget what they saw of this and later steps
};
std::string encode(const Event& event);

/// `data` with its length and the two masked checksums.
std::string tf_record(std::string_view data);

}  // namespace esm::train
