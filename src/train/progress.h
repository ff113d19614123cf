// What a person sees while a run goes on: one live line on a terminal, plain lines elsewhere.
#pragma once
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

#include "train/metrics.h"

namespace esm::train {

class Progress {
 public:
  struct Options {
    bool live = false;         // a terminal: redraw one line
    int64_t every_steps = 10;  // otherwise: a line every so many steps
    int64_t last_step = 0;     // for the time left
  };
  explicit Progress(const Options& options);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void step(const StepMetrics& row);
  /// Replaces the live line by `text` ("validating tiny 12/40"); nothing without a terminal.
  void status(const std::string& text);

 private:
  void draw();
  void erase();

  Options options_;
  std::mutex mutex_;  // of the next two: any thread may write a line into the log
  std::string live_text_;
  bool drawn_ = false;
  double seconds_per_step_ = 0;  // running mean
  std::chrono::steady_clock::time_point last_draw_{};
};

}  // namespace esm::train
