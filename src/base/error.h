// Exception types, one per audience. `app/` maps each to its exit code (see exit_code()).
#pragma once
#include <stdexcept>
#include <string>

namespace esm {

/// Base of every error that this program reports to a person. The message says what was expected, what was
/// found, where, and what to do next; it is printed as it stands, without a stack trace.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  /// Process exit code of this kind of error.
  virtual int exit_code() const noexcept { return 1; }
};

/// A bug of ours: a broken invariant found by ESM_CHECK.
class InternalError : public Error {
 public:
  using Error::Error;
};

class ConfigError : public Error {
 public:
  using Error::Error;
  int exit_code() const noexcept override { return 2; }
};

class DataError : public Error {
 public:
  using Error::Error;
  int exit_code() const noexcept override { return 3; }
};

class DeviceError : public Error {
 public:
  using Error::Error;
  int exit_code() const noexcept override { return 4; }
};

class DistError : public Error {
 public:
  using Error::Error;
  int exit_code() const noexcept override { return 5; }
};

class CheckpointError : public Error {
 public:
  using Error::Error;
  int exit_code() const noexcept override { return 6; }
};

/// Exit code of a run that was told to stop, saved its state, and can be resumed (EX_TEMPFAIL: "please requeue").
inline constexpr int kExitSavedPleaseRequeue = 75;
/// Exit code after SIGINT (128 + 2), state saved.
inline constexpr int kExitInterrupted = 130;
/// Exit code of a run that ended well but does not meet its `expect:` keys.
inline constexpr int kExitExpectationUnmet = 7;

}  // namespace esm
