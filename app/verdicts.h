// The findings of `esmtrain doctor`: one verdict a line as it comes, or one JSON object at the end.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace esm::app {

enum class Verdict { kOk, kWarning, kFailed, kSkipped };
/// "ok", "warning", "FAILED", "skipped".
std::string_view verdict_name(Verdict verdict);

struct Finding {
  Verdict verdict = Verdict::kOk;
  std::string name;                                          // "layer_norm"
  std::string detail = {};                                   // what was found, or why it was skipped
  std::vector<std::pair<std::string, double>> numbers = {};  // for JSON: {"cases", 118}
  std::vector<std::string> notes = {};                       // more lines, indented
};

class Verdicts {
 public:
  enum class Output { kLines, kJson };
  explicit Verdicts(Output output) : output_(output) {}

  /// Prints the line at once (Output::kLines), so that a long check that hangs is known by the line before it.
  void add(Finding finding);
  void add(Verdict verdict, std::string name, std::string detail) {
    add(Finding{.verdict = verdict, .name = std::move(name), .detail = std::move(detail)});
  }

  int count(Verdict verdict) const;
  /// Prints the sum, or the JSON object.
  void finish(double seconds, uint64_t seed) const;

 private:
  Output output_;
  std::vector<Finding> findings_;
};

}  // namespace esm::app
