// SIGINT, SIGTERM, SIGUSR1 and SIGHUP ask for a stop at the next step border; the handlers only set a flag.
#pragma once
#include <string>

namespace esm {

/// Installs handlers for SIGINT, SIGTERM, SIGUSR1 and SIGHUP (a closed terminal; not where nohup had it ignored) and
/// puts the old ones back at the end. SIGPIPE and SIGXFSZ (the
/// limit of the file size) are ignored: writing fails then, with an error that says so.
/// A further signal within kGraceSeconds of the first does not abort anything; after that a second SIGINT ends the
/// process at once (exit code 130), so that a hung program can still be left with Ctrl-C.
class StopSignals {
 public:
  static constexpr int kGraceSeconds = 5;
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// Number of the first signal that came, or 0.
  static int received();
  /// "SIGTERM", ...
  static std::string name(int signal);
};

}  // namespace esm
