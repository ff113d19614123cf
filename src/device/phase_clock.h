// Where the time of a step goes: device time by kind of operation, for `bench step`.
#pragma once
#include <string>
#include <vector>

#include "device/context.h"
#include "device/stream.h"

namespace esm::device {

struct PhaseTime {
  std::string name;
  double milliseconds = 0;
  int64_t count = 0;
};

/// Pairs of events around operations. While a context has one (CudaQueue::clock), graphs are not replayed.
class PhaseClock {
 public:
  /// Index of the interval, for end(). One that begins within another belongs to that.
  size_t begin(const char* name, StreamHandle stream);
  void end(size_t interval, StreamHandle stream);
  /// Sums by name, in order of first use, of all intervals since the last call. Waits for the device.
  std::vector<PhaseTime> read();

 private:
  struct Interval {
    Interval(const char* name_) : name(name_) {}
    const char* name;
    Event begin{Event::Timing::kOn}, end{Event::Timing::kOn};
  };
  std::vector<Interval> intervals_;
  size_t used_ = 0;
  int depth_ = 0;  // intervals that are open
};

/// One operation, while it lives; nothing without a clock. `name` must live for ever.
class Phase {
 public:
  Phase(const Context& context, const char* name);
  ~Phase();
  Phase(const Phase&) = delete;
  Phase& operator=(const Phase&) = delete;

 private:
  PhaseClock* clock_;
  StreamHandle stream_;
  size_t interval_ = 0;
};

}  // namespace esm::device
