// Verdicts of a test program: one line a case as it ends (a crash then hides no earlier one), failures again at the
// end.
#pragma once
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

namespace esm::test {

class Report {
 public:
  /// kRelayed: lines of fields apart by tabs, for the parent of isolated.h.
  enum class Output { kPrinted, kRelayed };
  explicit Report(Output output = Output::kPrinted) : output_(output) {}

  void add(const std::string& name, bool ok, const std::string& detail) {
    line(name, ok ? "ok" : "FAIL", detail);
    if (!ok) failures_.push_back({name, detail});
    ++cases_;
  }
  /// A fact worth reading that decides nothing.
  void note(const std::string& name, const std::string& detail) { line(name, "note", detail); }

  bool failed() const { return !failures_.empty(); }

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
  void line(const std::string& name, const char* verdict, std::string detail) const {
    if (output_ == Output::kRelayed) {
      std::replace(detail.begin(), detail.end(), '\n', ' ');
      fmt::print("@{}\t{}\t{}\n", verdict, name, detail);
    } else {
      fmt::print("{:<58} {:<4} {}\n", name, verdict, detail);
    }
    std::fflush(stdout);
  }

  Output output_;
  std::vector<Failure> failures_;
  int cases_ = 0;
};

}  // namespace esm::test
