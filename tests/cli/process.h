// Runs programs for tests: arguments, environment, time limit, captured output, signals.
//
//   const Finished done = run({ESM_EXE, "config", "check", "a.yaml"});
//   CHECK(done.exit_code == 2);
//
//   Process training({ESM_EXE, "train", "a.yaml"});
//   REQUIRE(training.wait_for("step 3", 30));
//   training.send(SIGTERM);
//   CHECK(training.wait().exit_code == 75);
#pragma once
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/files.h"

namespace esm::test {

struct ProcessOptions {
  std::vector<std::pair<std::string, std::string>> env;  // on top of ours
  std::vector<std::string> unset;                        // variables to take away
  std::string folder;                                    // where it runs; "": here
  double timeout_s = 60;                                 // then it is killed
};

struct Finished {
  int exit_code = -1;  // -1 when a signal ended it
  int signal = 0;      // that signal
  bool timed_out = false;
  double seconds = 0;
  std::string out;
  std::string err;

  /// Both outputs and how it ended, for INFO().
  std::string all() const {
    return "exit code " + std::to_string(exit_code) + ", signal " + std::to_string(signal) +
           (timed_out ? ", timed out" : "") + "\n--- stdout\n" + out + "\n--- stderr\n" + err;
  }
};

class Process {
 public:
  /// arguments[0]: the program.
  explicit Process(std::vector<std::string> arguments, ProcessOptions options = {})
      : options_(std::move(options)), scratch_("esm-process"), start_(std::chrono::steady_clock::now()) {
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ < 0) throw std::runtime_error("cannot fork: " + errno_text());
    if (pid_ == 0) become(argv);
  }
  ~Process() {
    if (running()) {
      ::kill(-pid_, SIGKILL);
      ::waitpid(pid_, &status_, 0);
    }
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void send(int signal) const { ::kill(pid_, signal); }
  /// SIGSTOP; returns when all its threads stand still, or it has ended.
  void pause() {
    send(SIGSTOP);
    if (running() && ::waitpid(pid_, &status_, WUNTRACED) == pid_) ended_ = !WIFSTOPPED(status_);
  }

  bool running() {
    if (!ended_) ended_ = ::waitpid(pid_, &status_, WNOHANG) == pid_;
    return !ended_;
  }

  /// True once standard output or standard error holds `text`; false when the process ends without, or after
  /// `seconds`.
  bool wait_for(const std::string& text, double seconds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    for (;;) {
      const bool alive = running();  // asked first: what a dead process wrote is all there
      if (out().find(text) != std::string::npos || err().find(text) != std::string::npos) return true;
      if (!alive || std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

  /// Waits for the end; kills the process and its children at the time limit.
  Finished wait() {
    Finished result;
    while (running()) {
      if (elapsed() > options_.timeout_s && !result.timed_out) {
        result.timed_out = true;
        ::kill(-pid_, SIGKILL);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    result.seconds = elapsed();
    if (WIFEXITED(status_)) result.exit_code = WEXITSTATUS(status_);
    if (WIFSIGNALED(status_)) result.signal = WTERMSIG(status_);
    result.out = out();
    result.err = err();
    return result;
  }

  /// What was written so far.
  std::string out() const { return read("out"); }
  std::string err() const { return read("err"); }

 private:
  std::string read(const char* name) const {
    const std::string path = scratch_.path() + "/" + name;
    return ::access(path.c_str(), R_OK) == 0 ? read_text_file(path) : "";
  }
  double elapsed() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

  /// In the child. A group of its own, so that the time limit reaches its children too.
  [[noreturn]] void become(std::vector<char*>& argv) const {
    ::setpgid(0, 0);
    if (!options_.folder.empty() && ::chdir(options_.folder.c_str()) != 0) ::_exit(126);
    for (const auto& [name, value] : options_.env) ::setenv(name.c_str(), value.c_str(), 1);
    for (const std::string& name : options_.unset) ::unsetenv(name.c_str());
    redirect("/dev/null", O_RDONLY, 0);
    redirect(scratch_.path() + "/out", O_WRONLY | O_CREAT | O_APPEND, 1);
    redirect(scratch_.path() + "/err", O_WRONLY | O_CREAT | O_APPEND, 2);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  static void redirect(const std::string& path, int flags, int target) {
    const int fd = ::open(path.c_str(), flags, 0644);
    if (fd < 0 || ::dup2(fd, target) < 0) ::_exit(126);
    ::close(fd);
  }

  ProcessOptions options_;
  ScratchFolder scratch_;
  std::chrono::steady_clock::time_point start_;
  pid_t pid_ = -1;
  int status_ = 0;
  bool ended_ = false;
};

/// Runs to the end.
inline Finished run(std::vector<std::string> arguments, ProcessOptions options = {}) {
  return Process(std::move(arguments), std::move(options)).wait();
}

}  // namespace esm::test
