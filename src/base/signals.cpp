#include "base/signals.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <ctime>

#include "base/error.h"

namespace esm {
namespace {

constexpr std::array kStopSignals{SIGINT, SIGTERM, SIGUSR1, SIGHUP};
std::atomic<int> first_signal{0};
std::atomic<int64_t> first_seconds{0};
struct sigaction old_actions[kStopSignals.size()];
struct sigaction old_pipe, old_file_size;

int64_t now_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec;
}

void on_signal(int signal) {
  int none = 0;
  if (first_signal.compare_exchange_strong(none, signal)) {
    first_seconds = now_seconds();
    return;
  }
  if (signal == SIGINT && now_seconds() - first_seconds.load() >= StopSignals::kGraceSeconds) ::_exit(kExitInterrupted);
}

}  // namespace

StopSignals::StopSignals() {
  first_signal = 0;
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (size_t i = 0; i < kStopSignals.size(); ++i) {
    ::sigaction(kStopSignals[i], &action, &old_actions[i]);
    if (kStopSignals[i] == SIGHUP && old_actions[i].sa_handler == SIG_IGN)  // nohup
      ::sigaction(SIGHUP, &old_actions[i], nullptr);
  }
  action.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &action, &old_pipe);
  ::sigaction(SIGXFSZ, &action, &old_file_size);
}

StopSignals::~StopSignals() {
  for (size_t i = 0; i < kStopSignals.size(); ++i) ::sigaction(kStopSignals[i], &old_actions[i], nullptr);
  ::sigaction(SIGPIPE, &old_pipe, nullptr);
  ::sigaction(SIGXFSZ, &old_file_size, nullptr);
}

int StopSignals::received() { return first_signal.load(); }

std::string StopSignals::name(int signal) {
  switch (signal) {
    case SIGINT: return "SIGINT";
    case SIGTERM: return "SIGTERM";
    case SIGUSR1: return "SIGUSR1";
    case SIGHUP: return "SIGHUP";
    default: return "signal " + std::to_string(signal);
  }
}

}  // namespace esm
