#include "ops/attention_choice.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/philox.h"
#include "base/units.h"

namespace esm::ops {

std::vector<int64_t> protein_lengths(int64_t tokens, int64_t max_seqlen, uint64_t seed) {
  ESM_CHECK(tokens > 0 && max_seqlen > 0, "protein lengths of {} tokens, at most {}", tokens, max_seqlen);
  std::vector<int64_t> lengths;
  for (int64_t used = 0; used < tokens; used += lengths.back()) {
    const PhiloxResult r = philox(seed, RandomStream::kSynthetic, lengths.size(), 77);
    const double drawn = std::exp(5.6 + 0.65 * normal_pair(r.v[0], r.v[1])[0]);
    const int64_t length = std::min(std::max<int64_t>(std::llround(drawn), 30), max_seqlen);
    lengths.push_back(std::min(length, tokens - used));
  }
  return lengths;
}

std::string AttentionChoice::text() const {
  std::string details;
  for (const AttentionTiming& t : timings)
    details +=
        fmt::format("{}{} {}", details.empty() ? "" : "; ", attention_kind_name(t.kind),
                    t.refusal.empty() ? with_thousands(std::llround(t.microseconds)) + " us a layer" : t.refusal);
  return fmt::format("attention: {}{}{}{}", attention_kind_name(kind), details.empty() ? "" : " (", details,
                     details.empty() ? "" : ")");
}

int fastest(const std::vector<AttentionTiming>& timings) {
  int best = -1;
  for (size_t i = 0; i < timings.size(); ++i) {
    if (!timings[i].refusal.empty()) continue;
    if (best < 0 || timings[i].microseconds * 1.02 < timings[static_cast<size_t>(best)].microseconds)
      best = static_cast<int>(i);
  }
  return best;
}

}  // namespace esm::ops
