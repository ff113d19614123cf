// Saves checkpoints while training goes on: the state is copied at the step border, a thread of its own writes the
// copy. One save at a time; its outcome, good or bad, is asked for by finish().
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>

#include "checkpoint/store.h"
#include "train/host_copy.h"

namespace esm::train {

struct SaveOutcome {
  int64_t step = 0;
  checkpoint::SaveResult result;
  double seconds = 0;  // from the start to the last byte on the disk
  double stalled = 0;  // of them, and before them, training waited
};

class BackgroundSave {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Mode { kBackground, kWait };
  /// Makes the request of the present state, with its tensors copied by `copy` unless that is null. May throw
  /// std::bad_alloc with a copy.
  using MakeRequest = std::function<checkpoint::SaveRequest(HostCopy* copy)>;

  /// Nobody else may use `store` from the first save on.
  BackgroundSave(checkpoint::CheckpointStore& store, const Context& context) : store_(store), copy_(context) {}
  /// Waits for a save on its way, and puts an error of it into the log.
  ~BackgroundSave();
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;

  /// kBackground: returns once the state is copied; without memory for the copy or a thread to write it, it says so in
  /// the log, and this save and all later ones are as with kWait: written right here. The one before must have been
  /// finished. stalled_since: when training began to wait.
  void start(const MakeRequest& make, Mode mode, Clock::time_point stalled_since);

  /// A save was started whose outcome nobody has asked for.
  bool pending() const { return outcome_.valid(); }
  /// finish() would not wait.
  bool done() const;
  /// Waits for the end of the pending save. Throws what saving it threw: CheckpointError (DiskFullError).
  SaveOutcome finish() { return outcome_.get(); }

 private:
  SaveOutcome write(const checkpoint::SaveRequest& request, Clock::time_point start);
  void give_up(const std::string& reason);
  bool copy_into_background(const MakeRequest& make, Clock::time_point stalled_since);

  checkpoint::CheckpointStore& store_;
  HostCopy copy_;
  bool possible_ = true;
  std::future<SaveOutcome> outcome_;
};

}  // namespace esm::train
