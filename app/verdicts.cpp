#include "app/verdicts.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>

#include "base/json_writer.h"
#include "base/units.h"

namespace esm::app {

std::string_view verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk: return "ok";
    case Verdict::kWarning: return "warning";
    case Verdict::kFailed: return "FAILED";
    case Verdict::kSkipped: return "skipped";
  }
  return "";
}

void Verdicts::add(Finding finding) {
  if (output_ == Output::kLines) {
    fmt::print("{:<8} {:<20} {}\n", verdict_name(finding.verdict), finding.name, finding.detail);
    for (const std::string& note : finding.notes) fmt::print("           {}\n", note);
    std::fflush(stdout);
  }
  findings_.push_back(std::move(finding));
}

int Verdicts::count(Verdict verdict) const {
  return static_cast<int>(std::count_if(findings_.begin(), findings_.end(),
                                        [verdict](const Finding& finding) { return finding.verdict == verdict; }));
}

void Verdicts::finish(double seconds, uint64_t seed) const {
  const int failed = count(Verdict::kFailed), warnings = count(Verdict::kWarning), skipped = count(Verdict::kSkipped);
  if (output_ == Output::kLines) {
    fmt::print("doctor: {} failed, {} warnings, {} skipped; seed {}, {}\n", failed, warnings, skipped, seed,
               human_duration(seconds));
    return;
  }
  JsonWriter json(2);
  json.begin_object().field("ok", failed == 0).field("failed", failed).field("warnings", warnings);
  json.field("skipped", skipped).field("seed", seed).field("seconds", seconds).key("findings").begin_array();
  for (const Finding& finding : findings_) {
    json.begin_object().field("name", finding.name).field("verdict", verdict_name(finding.verdict));
    json.field("detail", finding.detail);
    for (const auto& [key, value] : finding.numbers) json.field(key, value);
    if (!finding.notes.empty()) json.field("notes", finding.notes);
    json.end_object();
  }
  fmt::print("{}\n", json.end_array().end_object().text());
}

}  // namespace esm::app
