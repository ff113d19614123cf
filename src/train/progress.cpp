#include "train/progress.h"

#include <fmt/core.h>

#include <cstdio>

#include "base/log.h"
#include "base/units.h"

namespace esm::train {

Progress::Progress(const Options& options) : options_(options) {
  if (!options_.live) return;
  const auto locked = [this](void (Progress::*what)()) {
    return [this, what] {
      const std::scoped_lock lock(mutex_);
      (this->*what)();
    };
  };
  log::set_terminal_hooks(locked(&Progress::erase), locked(&Progress::draw));
}

Progress::~Progress() {
  if (!options_.live) return;
  log::set_terminal_hooks({}, {});
  erase();
}

void Progress::draw() {
  if (live_text_.empty()) return;
  std::fputs(live_text_.c_str(), stderr);
  drawn_ = true;
}

void Progress::erase() {
  if (drawn_) std::fputs("\r\033[K", stderr);
  drawn_ = false;
}

void Progress::status(const std::string& text) {
  if (!options_.live) return;
  const std::scoped_lock lock(mutex_);
  erase();
  live_text_ = text;
  draw();
}

void Progress::step(const StepMetrics& row) {
  // The first steps warm caches up; a running mean forgets them soon.
  seconds_per_step_ = seconds_per_step_ == 0 ? row.seconds : 0.9 * seconds_per_step_ + 0.1 * row.seconds;
  const auto now = std::chrono::steady_clock::now();
  const bool due = options_.live
                       ? now - last_draw_ > std::chrono::milliseconds(100) || row.step == options_.last_step
                       : row.step % options_.every_steps == 0 || row.step == 1 || row.step == options_.last_step;
  if (!due) return;
  last_draw_ = now;
  const double left = seconds_per_step_ * static_cast<double>(options_.last_step - row.step);
  const std::string text =
      fmt::format("step {}/{}  loss {:.4f}  lr {:.3g}  grad norm {:.3f}  {} tokens/s  fill {:.1f} %  left {}{}",
                  row.step, options_.last_step, row.loss, row.lr, row.grad_norm, human_count(row.tokens_per_s()),
                  100 * row.fill(), human_duration(left), row.skipped ? "  SKIPPED" : "");
  if (options_.live)
    status(text);
  else
    log::info("{}", text);
}

}  // namespace esm::train
