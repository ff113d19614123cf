// Which samples share a batch: fill, order, exactly once per epoch, exact resume.
#include "data/packer.h"

#include <algorithm>
#include <limits>
#include <map>

#include "base/error.h"
#include "data_fixture.h"
#include "support/catch.h"

using namespace esm;
using namespace esm::data;
using namespace esm::data::test;

namespace {

PackerOptions options_for(const std::vector<int64_t>& lengths, int64_t budget, int64_t window = 1024) {
  PackerOptions options;
  options.budget_tokens = budget;
  options.max_tokens = 1024;
  options.window = window;
  options.sets = {{.samples = std::ssize(lengths)}};
  options.tokens_of = [&lengths](const Draw& s) {
    return std::min<int64_t>(1024, lengths[static_cast<size_t>(s.position)] + 2);
  };
  return options;
}

int64_t tokens_in(const BatchPlan& plan, const PackerOptions& options) {
  int64_t sum = 0;
  for (const Draw& sample : plan.samples) sum += options.tokens_of(sample);
  return sum;
}

/// Of a packer that cuts several batches at once.
PackerOptions bucketed_options(const std::vector<int64_t>& lengths) {
  PackerOptions options = options_for(lengths, 8192, 300);
  options.layout = Layout::kBshd;
  options.bucketed = true;
  return options;
}

}  // namespace

TEST_CASE("packs of protein-like lengths are full and never over the budget") {
  const auto lengths = protein_lengths(20000);
  for (const int64_t budget : {1024, 2048, 8192, 32768}) {
    const PackerOptions options = options_for(lengths, budget);
    Packer packer(options);
    int64_t used = 0;
    const int64_t n = 3'000'000 / budget;
    BatchPlan plan;
    for (int64_t i = 0; i < n; ++i) {
      REQUIRE(packer.next(plan));
      const int64_t tokens = tokens_in(plan, options);
      REQUIRE(tokens <= budget);
      used += tokens;
    }
    INFO(budget << ": " << 100.0 * static_cast<double>(used) / static_cast<double>(n * budget));
    CHECK(static_cast<double>(used) >= 0.999 * static_cast<double>(n * budget));
  }
}

TEST_CASE("every sample is given out once per epoch, not far from its place") {
  const auto lengths = protein_lengths(3000);
  const PackerOptions options = options_for(lengths, 8192, 256);
  Packer packer(options);
  std::map<std::pair<int64_t, int64_t>, int> seen;
  BatchPlan plan;
  int64_t draws = 0, latest = 0;
  while (packer.state().draws.sets[0].epoch < 3) {
    REQUIRE(packer.next(plan));
    for (const Draw& sample : plan.samples) {
      ++seen[{sample.epoch, sample.position}];
      latest = std::max(latest, draws++ - (sample.epoch * 3000 + sample.position));
    }
  }
  for (int64_t epoch = 0; epoch < 2; ++epoch)
    for (int64_t position = 0; position < 3000; ++position) REQUIRE(seen[{epoch, position}] == 1);
  // The oldest goes first in each pack of at least 8 samples, so none can wait for more than the window's packs.
  CHECK(latest < 256 * 32);
  for (const Draw& sample : packer.state().pending) CHECK(seen.count({sample.epoch, sample.position}) == 0);
}

TEST_CASE("a packer goes on from any of its states as if it had never stopped") {
  const auto lengths = protein_lengths(500);
  PackerOptions packed = options_for(lengths, 4096, 100), rows = packed, buckets = packed;
  rows.layout = buckets.layout = Layout::kBshd;
  buckets.bucketed = true;
  buckets.seed = 4;
  for (const PackerOptions& options : {packed, rows, buckets}) {
    Packer straight(options);
    std::vector<PackerState> states;
    std::vector<std::vector<Draw>> plans;
    BatchPlan plan;
    for (int i = 0; i < 120; ++i) {
      states.push_back(straight.state());
      straight.next(plan);
      plans.push_back(plan.samples);
    }
    CHECK(straight.state().draws.sets[0].epoch >= 1);
    for (size_t from = 0; from < states.size(); from += 7) {
      Packer resumed(options, states[from]);
      CHECK(resumed.state() == states[from]);
      for (size_t i = from; i < plans.size(); ++i) {
        resumed.next(plan);
        REQUIRE(plan.samples == plans[i]);
      }
    }
  }
}

TEST_CASE("a set smaller than a pack repeats within it, each repeat an epoch of its own") {
  const std::vector<int64_t> lengths = {60, 60, 60};
  const PackerOptions options = options_for(lengths, 1024);
  Packer packer(options);
  BatchPlan plan;
  std::map<std::pair<int64_t, int64_t>, int> seen;
  for (int i = 0; i < 10; ++i) {
    REQUIRE(packer.next(plan));
    CHECK(plan.samples.size() == 16);
    for (const Draw& sample : plan.samples) CHECK(++seen[{sample.epoch, sample.position}] == 1);
  }
}

TEST_CASE("one pass gives everything once and ends") {
  const auto lengths = protein_lengths(777);
  PackerOptions options = options_for(lengths, 2048);
  options.epochs = 1;
  Packer packer(options);
  BatchPlan plan;
  std::vector<int64_t> positions;
  while (packer.next(plan)) {
    CHECK(tokens_in(plan, options) <= 2048);
    for (const Draw& sample : plan.samples) positions.push_back(sample.position);
  }
  CHECK_FALSE(packer.next(plan));
  CHECK(plan.samples.empty());
  std::sort(positions.begin(), positions.end());
  REQUIRE(positions.size() == 777);
  for (int64_t i = 0; i < 777; ++i) CHECK(positions[static_cast<size_t>(i)] == i);
}

TEST_CASE("samples of no tokens are left out") {
  const std::vector<int64_t> lengths = {60, 60, 60, 60};
  PackerOptions options = options_for(lengths, 1024);
  options.tokens_of = [](const Draw& s) { return s.position == 2 ? 0 : 62; };
  Packer packer(options);
  BatchPlan plan;
  for (int i = 0; i < 5; ++i) {
    packer.next(plan);
    for (const Draw& sample : plan.samples) CHECK(sample.position != 2);
  }
}

TEST_CASE("rows are as long as the longest, in multiples of 8, and as many as fit") {
  const auto lengths = protein_lengths(2000);
  PackerOptions options = options_for(lengths, 8192);
  options.layout = Layout::kBshd;
  double fill[2] = {};
  for (const bool bucketed : {false, true}) {
    options.bucketed = bucketed;
    Packer packer(options);
    BatchPlan plan;
    std::map<std::pair<int64_t, int64_t>, int> seen;
    int64_t used = 0, batches = 0, longest_before = 0, rises = 0;
    for (; packer.state().draws.sets[0].epoch < 3; ++batches) {
      packer.next(plan);
      int64_t longest = 0;
      for (const Draw& sample : plan.samples) {
        longest = std::max(longest, options.tokens_of(sample));
        ++seen[{sample.epoch, sample.position}];
      }
      CHECK(plan.row_tokens == (longest + 7) / 8 * 8);
      CHECK(plan.row_tokens * std::ssize(plan.samples) <= 8192);
      used += tokens_in(plan, options);
      rises += longest > longest_before ? 1 : 0;
      longest_before = longest;
    }
    for (int64_t position = 0; position < 2000; ++position) REQUIRE(seen[{0, position}] == 1);
    fill[bucketed ? 1 : 0] = static_cast<double>(used) / static_cast<double>(8192 * batches);
    // Random order of the buckets: about half of the steps go up.
    if (bucketed) CHECK(std::abs(static_cast<double>(rises) / static_cast<double>(batches) - 0.5) < 0.15);
  }
  CHECK(fill[0] < 0.6);
  CHECK(fill[1] > 0.85);
}

TEST_CASE("batches of a state that do not fit its pending samples are cut anew") {
  const auto lengths = protein_lengths(500);
  PackerOptions options = bucketed_options(lengths);
  Packer packer(options);
  BatchPlan plan;
  packer.next(plan);
  PackerState state = packer.state();
  const int64_t n = std::ssize(state.pending);
  REQUIRE(n > 2);
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  for (const std::vector<int64_t>& groups :
       {std::vector<int64_t>{n + 1000000000, -1000000000}, {kMost, kMost, n + 2}, {1, kMost}, {n + 1}, {n, 0}, {1}}) {
    state.groups = groups;
    Packer resumed(options, state);
    CHECK(resumed.state().groups.empty());
    std::map<std::pair<int64_t, int64_t>, int> seen;
    do {
      REQUIRE(resumed.next(plan));
      CHECK(plan.row_tokens * std::ssize(plan.samples) <= 8192);
      for (const Draw& sample : plan.samples) CHECK(++seen[{sample.epoch, sample.position}] == 1);
    } while (!resumed.state().groups.empty());
    CHECK(seen.size() == 300);
    for (const Draw& sample : state.pending) CHECK(seen[{sample.epoch, sample.position}] == 1);
  }
}

TEST_CASE("states of another data set or of other settings") {
  const auto lengths = protein_lengths(500);
  PackerOptions options = bucketed_options(lengths);
  Packer packer(options);
  BatchPlan plan;
  packer.next(plan);
  const PackerState state = packer.state();
  PackerOptions small = options_for(lengths, 8192, 300);
  small.sets = {{.samples = 50}};
  CHECK_THROWS_AS(Packer(small, state), DataError);
  // Another budget: the batches that were cut already are cut anew, and none of the pending samples is lost.
  options.budget_tokens = 1024;
  Packer narrow(options, state);
  std::map<std::pair<int64_t, int64_t>, int> seen;
  for (int i = 0; i < 2000; ++i) {
    narrow.next(plan);
    CHECK(plan.row_tokens * std::ssize(plan.samples) <= 1024);
    for (const Draw& sample : plan.samples) CHECK(++seen[{sample.epoch, sample.position}] == 1);
  }
  for (const Draw& sample : state.pending) CHECK(seen[{sample.epoch, sample.position}] == 1);
}
