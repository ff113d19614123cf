// Mixtures: shares, epochs of each set, exact resume, independence of threads and ranks.
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "data/loader.h"
#include "data_fixture.h"
#include "support/catch.h"

using namespace esm;
using namespace esm::data;
using namespace esm::data::test;

namespace {

constexpr int64_t kSmall = 40, kLarge = 300;

// Sequences 0 .. 39 are those of "mine", the others those of "uniref".
std::vector<TrainingSet> two_sets(const Scratch& scratch, double mine = 1, double uniref = 3) {
  const auto lengths = protein_lengths(kSmall + kLarge);
  return {{.name = "mine",
           .data = made_set(scratch, {lengths.begin(), lengths.begin() + kSmall}, "mine.h5"),
           .weight = mine},
          {.name = "uniref",
           .data = made_set(scratch, {lengths.begin() + kSmall, lengths.end()}, "uniref.h5"),
           .weight = uniref}};
}

LoaderOptions options() { return {.seed = 3, .max_tokens = 512, .tokens_per_batch = 2048, .pack_window = 50}; }

bool same(const Batch& a, const Batch& b) {
  return a.tokens == b.tokens && a.cu_seqlens == b.cu_seqlens && a.scored_rows == b.scored_rows &&
         a.targets == b.targets;
}

}  // namespace

TEST_CASE("draws choose sets by weight, and each set goes through its own epochs") {
  const std::vector<DrawnSet> sets{
      {.samples = 10, .weight = 2}, {.samples = 1000, .weight = 5}, {.samples = 7, .weight = 3}};
  DrawStream stream(sets, 11, 0, {});
  std::map<std::pair<int64_t, int64_t>, std::set<int64_t>> seen;  // (set, epoch) -> positions
  std::vector<double> counts(3);
  constexpr int kDraws = 20000;
  for (int i = 0; i < kDraws; ++i) {
    Draw draw;
    REQUIRE(stream.next(draw));
    REQUIRE(seen[{draw.set, draw.epoch}].insert(draw.position).second);
    CHECK(stream.has_given(draw));
    ++counts[static_cast<size_t>(draw.set)];
  }
  double chi2 = 0;
  for (size_t i = 0; i < 3; ++i) {
    const double expected = kDraws * sets[i].weight / 10;
    chi2 += (counts[i] - expected) * (counts[i] - expected) / expected;
    // Every epoch but the last is complete.
    for (int64_t epoch = 0; epoch < stream.state().sets[i].epoch; ++epoch)
      CHECK(std::ssize(seen[{static_cast<int64_t>(i), epoch}]) == sets[i].samples);
  }
  CHECK(chi2 < 13.8);  // 2 degrees of freedom, 0.999
  CHECK(stream.state().draws == kDraws);
  CHECK_FALSE(stream.has_given({.epoch = 0, .position = 0, .set = 3}));
  CHECK_FALSE(stream.has_given({.epoch = 0, .position = 10, .set = 0}));
  CHECK_FALSE(
      stream.has_given({.epoch = stream.state().sets[1].epoch, .position = stream.state().sets[1].cursor, .set = 1}));
}

TEST_CASE(
    "weights count relative to each other; the stream goes on from any state, and refuses one that does not fit") {
  DrawStream stream({{10, 2}, {30, 6}}, 5, 0, {}), scaled({{10, 0.5}, {30, 1.5}}, 5, 0, {});
  for (int i = 0; i < 200; ++i) {
    DrawStream resumed({{10, 2}, {30, 6}}, 5, 0, stream.state());
    Draw a, b, c;
    stream.next(a);
    scaled.next(b);
    resumed.next(c);
    CHECK(a == b);
    CHECK(a == c);
  }
  CHECK_THROWS_AS(DrawStream({{10, 2}}, 5, 0, stream.state()), DataError);
  CHECK_THROWS_AS(DrawStream({{10, 2}, {1, 6}}, 5, 0, {.draws = 3, .sets = {{0, 0}, {0, 2}}}), DataError);
}

TEST_CASE("threads and ranks do not change a mixture, and every state resumes exactly") {
  const Scratch scratch;
  const auto sets = two_sets(scratch);
  Loader plain(sets, options());
  std::vector<Batch> batches(60);
  std::vector<LoaderState> states{plain.state()};
  for (Batch& batch : batches) {
    plain.next(batch);
    states.push_back(plain.state());
  }
  CHECK(states.back().packer.draws.sets[0].epoch >= 2);
  for (const int64_t threads : {0, 1, 4}) {
    LoaderOptions two = options();
    two.size = 2;
    two.threads = threads;
    for (two.rank = 0; two.rank < 2; ++two.rank) {
      Loader loader(sets, two);
      Batch batch;
      for (size_t i = 0; i < 20; ++i) {
        loader.next(batch);
        REQUIRE(same(batch, batches[2 * i + static_cast<size_t>(two.rank)]));
        REQUIRE(loader.state() == states[2 * i + 2]);
      }
    }
  }
  for (size_t from = 0; from < batches.size(); from += 7) {
    const LoaderState state = LoaderState::from_integers(states[from].to_integers());
    REQUIRE(state == states[from]);
    Loader resumed(sets, options(), state);
    Batch batch;
    for (size_t i = from; i < std::min(batches.size(), from + 5); ++i) {
      resumed.next(batch);
      REQUIRE(same(batch, batches[i]));
    }
  }
}

TEST_CASE("a batch holds residues of the right set, and what was given out is counted by set") {
  const Scratch scratch;
  Loader loader(two_sets(scratch), options());
  std::array<SetTotals, 2> given;
  Batch batch;
  for (int i = 0; i < 200; ++i) {
    loader.next(batch);
    size_t segment = 0;
    std::vector<uint8_t> truth = batch.tokens;
    for (size_t n = 0; n < batch.targets.size(); ++n)
      truth[static_cast<size_t>(batch.scored_rows[n])] = batch.targets[n];
    for (size_t s = 0; s < batch.is_dummy.size(); ++s) {
      if (batch.is_dummy[s] != 0) continue;
      const Segment& piece = batch.segments[segment++];
      const bool mine = piece.sequence < kSmall;
      const int64_t local = mine ? piece.sequence : piece.sequence - kSmall;
      SetTotals& totals = given[mine ? 0 : 1];
      ++totals.sequences;
      totals.tokens += piece.n_tokens;
      for (int32_t p = 0; p < piece.n_tokens - 2; ++p)
        REQUIRE(truth[static_cast<size_t>(batch.cu_seqlens[s] + 1 + p)] == made_residue(local, piece.start + p));
    }
  }
  const LoaderState state = loader.state();
  REQUIRE(state.packer.given.size() == 2);
  CHECK(state.packer.given[0] == given[0]);
  CHECK(state.packer.given[1] == given[1]);
  const double share =
      static_cast<double>(given[0].sequences) / static_cast<double>(given[0].sequences + given[1].sequences);
  CHECK(std::abs(share - 0.25) < 0.05);
  CHECK(state.epochs(0) == Approx(static_cast<double>(given[0].sequences) / kSmall));
  CHECK(state.epochs() == Approx(static_cast<double>(given[0].sequences + given[1].sequences) / (kSmall + kLarge)));
  CHECK_THAT(loader.summary(), ContainsSubstring("mine: 25.00 %") && ContainsSubstring("uniref: 75.00 %"));
  const std::vector<DrawnSoFar> drawn = loader.drawn();
  REQUIRE(drawn.size() == 2);
  CHECK(drawn[0].name == "mine");
  CHECK(drawn[1].name == "uniref");
  for (size_t i = 0; i < 2; ++i) {
    CHECK(drawn[i].sequences == given[i].sequences);
    CHECK(drawn[i].tokens == given[i].tokens);
    CHECK(drawn[i].epochs == state.epochs(i));
  }
}

TEST_CASE("sets of one size have orders, masks and crops of their own") {
  const Scratch scratch;
  const std::vector<int64_t> lengths(64, 62);
  std::vector<TrainingSet> sets{{.name = "a", .data = made_set(scratch, lengths, "a.h5")},
                                {.name = "b", .data = made_set(scratch, lengths, "b.h5")}};
  Loader loader(sets, {.seed = 1, .max_tokens = 64, .tokens_per_batch = 128, .pack_window = 1});
  std::array<std::vector<int64_t>, 2> order;
  std::map<std::pair<int64_t, int64_t>, std::vector<int32_t>> scored;  // (set, sequence in it) -> positions
  Batch batch;
  while (loader.state().epochs(0) < 1 || loader.state().epochs(1) < 1) {
    loader.next(batch);
    for (size_t s = 0; s < batch.segments.size(); ++s) {
      const Segment& piece = batch.segments[s];
      if (piece.epoch > 0) continue;
      const int64_t set = piece.sequence / 64;
      order[static_cast<size_t>(set)].push_back(piece.sequence % 64);
      auto& rows = scored[{set, piece.sequence % 64}];
      for (const int32_t row : batch.scored_rows)
        if (row >= batch.cu_seqlens[s] && row < batch.cu_seqlens[s + 1]) rows.push_back(row - batch.cu_seqlens[s]);
    }
  }
  REQUIRE(order[0].size() == 64);
  REQUIRE(order[1].size() == 64);
  CHECK(order[0] != order[1]);
  int alike = 0;
  for (int64_t i = 0; i < 64; ++i) alike += scored[{0, i}] == scored[{1, i}] ? 1 : 0;
  CHECK(alike < 8);
}

TEST_CASE("other weights go on where the sets stand; other sets begin their next epoch") {
  const Scratch scratch;
  Loader loader(two_sets(scratch), options());
  Batch batch;
  for (int i = 0; i < 40; ++i) loader.next(batch);
  const LoaderState before = loader.state();
  Loader weighted(two_sets(scratch, 9, 1), options(), before);
  CHECK(weighted.state() == before);
  auto sets = two_sets(scratch);
  sets.push_back({.name = "more", .data = made_set(scratch, {100, 120}, "more.h5")});
  const LoaderState grown = Loader(sets, options(), before).state();
  REQUIRE(grown.packer.draws.sets.size() == 3);
  for (const SetPosition& at : grown.packer.draws.sets)
    CHECK(at == SetPosition{.epoch = before.packer.draws.sets[0].epoch + 1, .cursor = 0});
  CHECK(grown.packer.batches == 40);
}

TEST_CASE("positions of checkpoints from before mixtures are read") {
  const Scratch scratch;
  const Dataset set = made_set(scratch, protein_lengths(100));
  const LoaderOptions plain{.seed = 3, .tokens_per_batch = 2048, .pack_window = 50};
  Loader loader(set, plain);
  Batch batch, other;
  for (int i = 0; i < 9; ++i) loader.next(batch);
  const LoaderState state = loader.state();
  const std::vector<int64_t> now = state.to_integers();
  const SetPosition& at = state.packer.draws.sets[0];
  std::vector<int64_t> old{
      1, state.packer.batches, at.epoch, at.cursor, 100, now[3], now[4], std::ssize(state.packer.pending)};
  for (const Draw& draw : state.packer.pending) old.insert(old.end(), {draw.epoch, draw.position});
  old.push_back(0);
  const LoaderState read = LoaderState::from_integers(old);
  CHECK(read.fingerprint == set.fingerprint());
  Loader resumed(set, plain, read);
  for (int i = 0; i < 20; ++i) {
    loader.next(batch);
    resumed.next(other);
    REQUIRE(same(batch, other));
  }
}
