// Verdicts of a test program: one line a case as it ends (a crash then hides no earlier one), failures again at the
// end.
#pragma once
#include <fmt/core.h>

#include <cstdio>
#include <string>
#include <vector>

namespace esm::test {

class Report {
 public:
  void add(const std::string& name, bool ok, const std::string& detail) {
    line(name, ok ? "ok" : "FAIL", detail);
    if (!ok) failures_.push_back({name, detail});
    ++cases_;
  }
  /// A fact worth reading that decides nothing.
  void note(const std::string& name, const std::string& detail) { line(name, "note", detail); }

  /// Prints the failures and the sum; returns the exit code.
  int finish(const char* program) const {
    for (const Failure& failure : failures_) line(failure.name, "FAIL", failure.detail);
    fmt::print("{}: {} cases, {} failed\n", program, cases_, failures_.size());
    return failures_.empty() ? 0 : 1;
  }

 private:
  struct Failure {
    std::string name, detail;
  };
  static void line(const std::string& name, const char* verdict, const std::string& detail) {
    fmt::print("{:<58} {:<4} {}\n", name, verdict, detail);
    std::fflush(stdout);
  }

  std::vector<Failure> failures_;
  int cases_ = 0;
};

}  // namespace esm::test
