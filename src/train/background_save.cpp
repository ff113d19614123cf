#include "train/background_save.h"

#include <new>
#include <system_error>

#include "base/check.h"
#include "base/log.h"

namespace esm::train {
namespace {

double seconds_since(BackgroundSave::Clock::time_point start) {
  return std::chrono::duration<double>(BackgroundSave::Clock::now() - start).count();
}

}  // namespace

BackgroundSave::~BackgroundSave() {
  if (!pending()) return;
  try {
    log::info("saved {}", finish().result.path);
  } catch (const std::exception& e) {
    log::error("{}", e.what());
  }
}

bool BackgroundSave::done() const {
  return pending() && outcome_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

SaveOutcome BackgroundSave::write(const checkpoint::SaveRequest& request, Clock::time_point start) {
  SaveOutcome outcome{.step = request.manifest.step, .result = store_.save(request)};
  outcome.seconds = seconds_since(start);
  return outcome;
}

bool BackgroundSave::copy_into_background(const MakeRequest& make, Clock::time_point stalled_since) {
  if (!possible_) return false;
  const Clock::time_point start = Clock::now();
  try {
    copy_.clear();
    checkpoint::SaveRequest request = make(&copy_);
    copy_.wait();
    const double stalled = seconds_since(stalled_since);
    outcome_ = std::async(std::launch::async, [this, request = std::move(request), start, stalled] {
      SaveOutcome outcome = write(request, start);
      outcome.stalled = stalled;
      return outcome;
    });
    return true;
  } catch (const std::bad_alloc&) {
    give_up("there is no host memory for a copy of the checkpoint");
  } catch (const std::system_error& e) {  // of std::async
    give_up(fmt::format("there is no thread to write a checkpoint ({})", e.what()));
  }
  return false;
}

void BackgroundSave::give_up(const std::string& reason) {
  copy_.release();
  possible_ = false;
  log::warn(
      "{}: from now on training waits while one is written (checkpoint.async: false does the same without this "
      "warning)",
      reason);
}

void BackgroundSave::start(const MakeRequest& make, Mode mode, Clock::time_point stalled_since) {
  ESM_CHECK(!pending(), "a checkpoint is being saved already");
  if (mode == Mode::kBackground && copy_into_background(make, stalled_since)) return;
  std::promise<SaveOutcome> promise;
  outcome_ = promise.get_future();
  try {
    SaveOutcome outcome = write(make(nullptr), Clock::now());
    outcome.stalled = seconds_since(stalled_since);
    promise.set_value(std::move(outcome));
  } catch (...) {
    promise.set_exception(std::current_exception());
  }
}

}  // namespace esm::train
