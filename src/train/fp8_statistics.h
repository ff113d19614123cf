// RUN/fp8.jsonl: statistics of a training run under FP8, one JSON object a line, each step once (also after a kill and
// a resume):
//   {"step": 7,
//    "tensors": [{"layer": "layers.3", "tensor": "fc1.x", "amax": 2.5, "scale": 128, "underflow": 0.01, "overflow":
//    0}], "layers": [{"layer": "layers.3", "mean": 0.1, "variance": 1.5, "grad_norm": 0.02}]}
// A figure that is not finite stands as null.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/files.h"

namespace esm::train {

struct TensorStatistics {
  std::string layer;     // "layers.3"
  std::string tensor;    // "fc1.x", "fc1.dy", "fc1.weight"
  double amax = 0;       // greatest magnitude before scaling
  double scale = 1;      // factor applied before rounding
  double underflow = 0;  // share of codes that are 0, in rows that are not 0 throughout
  double overflow = 0;   // share of codes at the greatest magnitude
};

struct LayerStatistics {
  std::string layer;
  double mean = 0;       // of the layer's output activations
  double variance = 0;   // of them
  double grad_norm = 0;  // L2, of the layer's parameters
};

struct StepStatistics {
  int64_t step = 0;
  std::vector<TensorStatistics> tensors;
  std::vector<LayerStatistics> layers;
};

class StatisticsLog {
 public:
  /// Opens `path` for appending; rows of steps after `keep_through_step` are cut first, and so is a line torn by a
  /// kill. Throws DataError.
  StatisticsLog(const std::string& path, int64_t keep_through_step);
  void append(const StepStatistics& row);
  void flush() { file_.flush(); }

 private:
  LineAppender file_;
};

/// All rows of the file; null is read as NaN. A last line without its newline is left out (the run may be writing it,
/// or was killed doing so). Throws DataError with file and line for anything else that is no such row, and for steps
/// that do not rise.
std::vector<StepStatistics> read_statistics(const std::string& path);

}  // namespace esm::train
