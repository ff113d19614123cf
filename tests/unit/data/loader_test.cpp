// Batches: layout, content, independence of threads, ranks and packing, exact resume, errors, memory.
#include "data/loader.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <optional>

#include "data/prepare.h"
#include "data/samples.h"
#include "data_fixture.h"
#include "support/catch.h"

using namespace esm;
using namespace esm::data;
using namespace esm::data::test;

namespace {

bool same(const Batch& a, const Batch& b) {
  const auto equal = [](const Segment& x, const Segment& y) {
    return x.sequence == y.sequence && x.epoch == y.epoch && x.start == y.start && x.n_tokens == y.n_tokens;
  };
  return a.tokens == b.tokens && a.cu_seqlens == b.cu_seqlens && a.is_dummy == b.is_dummy &&
         a.scored_rows == b.scored_rows && a.targets == b.targets && a.real_tokens == b.real_tokens &&
         a.max_seqlen == b.max_seqlen &&
         std::equal(a.segments.begin(), a.segments.end(), b.segments.begin(), b.segments.end(), equal);
}

// What a batch promises (batch.h), whatever is in it.
void check_form(const Batch& batch, int64_t budget, int64_t max_tokens) {
  REQUIRE(batch.budget() == budget);
  REQUIRE(batch.cu_seqlens.front() == 0);
  REQUIRE(batch.cu_seqlens.back() == budget);
  REQUIRE(batch.is_dummy.size() + 1 == batch.cu_seqlens.size());
  size_t real = 0;
  int64_t real_tokens = 0;
  int32_t longest = 0;
  for (size_t s = 0; s < batch.is_dummy.size(); ++s) {
    const int32_t begin = batch.cu_seqlens[s], end = batch.cu_seqlens[s + 1];
    REQUIRE(begin < end);
    REQUIRE(end - begin <= max_tokens);
    longest = std::max(longest, end - begin);
    if (batch.is_dummy[s] != 0) {
      for (int32_t t = begin; t < end; ++t) REQUIRE(batch.tokens[static_cast<size_t>(t)] == kPadToken);
      continue;
    }
    REQUIRE(batch.segments.at(real).n_tokens == end - begin);
    REQUIRE(batch.tokens[static_cast<size_t>(begin)] == kClsToken);
    REQUIRE(batch.tokens[static_cast<size_t>(end) - 1] == kEosToken);
    real_tokens += end - begin;
    ++real;
  }
  REQUIRE(real == batch.segments.size());
  REQUIRE(batch.real_tokens == real_tokens);
  REQUIRE(batch.max_seqlen == longest);
  REQUIRE(batch.scored_rows.size() == batch.targets.size());
  for (size_t i = 1; i < batch.scored_rows.size(); ++i) REQUIRE(batch.scored_rows[i - 1] < batch.scored_rows[i]);
}

// Residues of each segment with the masked ones put back, and which positions (in the uncut sequence) are scored.
struct Drawn {
  std::vector<uint8_t> seen, truth;
  std::vector<int64_t> scored;
};
std::map<std::pair<int64_t, int64_t>, std::map<int32_t, Drawn>> contents(const Batch& batch) {
  std::map<std::pair<int64_t, int64_t>, std::map<int32_t, Drawn>> all;
  std::vector<uint8_t> truth = batch.tokens;
  for (size_t i = 0; i < batch.targets.size(); ++i) truth[static_cast<size_t>(batch.scored_rows[i])] = batch.targets[i];
  size_t segment = 0;
  for (size_t s = 0; s < batch.is_dummy.size(); ++s) {
    if (batch.is_dummy[s] != 0) continue;
    const Segment& piece = batch.segments[segment++];
    const int32_t begin = batch.cu_seqlens[s] + 1, end = batch.cu_seqlens[s + 1] - 1;
    Drawn drawn{
        {batch.tokens.begin() + begin, batch.tokens.begin() + end}, {truth.begin() + begin, truth.begin() + end}, {}};
    for (const int32_t row : batch.scored_rows)
      if (row >= begin && row < end) drawn.scored.push_back(piece.start + row - begin);
    REQUIRE(all[{piece.epoch, piece.sequence}].emplace(piece.start, std::move(drawn)).second);
  }
  return all;
}

struct Pages {
  int64_t size = 0, resident = 0;
};
Pages pages_of_process() {
  Pages pages;
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  REQUIRE(std::fscanf(file, "%ld %ld", &pages.size, &pages.resident) == 2);
  std::fclose(file);
  return pages;
}
[[maybe_unused]] int64_t resident_pages() { return pages_of_process().resident; }

int64_t threads_of_process() { return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {}); }

// As long as it lives, there is room in the address space for the stacks of `most` more threads only.
class FewThreads {
 public:
  explicit FewThreads(int64_t most) {
    REQUIRE(::pthread_getattr_default_np(&old_) == 0);
    pthread_attr_t large;
    REQUIRE(::pthread_attr_init(&large) == 0);
    REQUIRE(::pthread_attr_setstacksize(&large, size_t{kStack}) == 0);
    REQUIRE(::pthread_setattr_default_np(&large) == 0);
    ::pthread_attr_destroy(&large);
    REQUIRE(::getrlimit(RLIMIT_AS, &limit_) == 0);
    rlimit lower = limit_;
    lower.rlim_cur =
        static_cast<rlim_t>(pages_of_process().size * ::sysconf(_SC_PAGESIZE) + most * kStack + kStack / 2);
    REQUIRE(::setrlimit(RLIMIT_AS, &lower) == 0);
  }
  ~FewThreads() {
    ::setrlimit(RLIMIT_AS, &limit_);
    ::pthread_setattr_default_np(&old_);
    ::pthread_attr_destroy(&old_);
  }
  FewThreads(const FewThreads&) = delete;
  FewThreads& operator=(const FewThreads&) = delete;

 private:
  static constexpr int64_t kStack = int64_t{2} << 30;
  pthread_attr_t old_;
  rlimit limit_{};
};

}  // namespace

TEST_CASE("batches have the promised form in every layout") {
  const Scratch scratch;
  const Dataset set = made_set(scratch, protein_lengths(400));
  for (const Layout layout : {Layout::kPacked, Layout::kBshd})
    for (const bool bucketed : {false, true})
      for (const Overlong overlong : {Overlong::kCrop, Overlong::kTruncate, Overlong::kWindow, Overlong::kSkip}) {
        if (bucketed && layout == Layout::kPacked) continue;
        LoaderOptions options{.seed = 3,
                              .max_tokens = 512,
                              .tokens_per_batch = 2048,
                              .layout = layout,
                              .bucketed = bucketed,
                              .overlong = overlong,
                              .window_stride = 300,
                              .pack_window = 64};
        Loader loader(set, options);
        Batch batch;
        int64_t real = 0;
        for (int i = 0; i < 100; ++i) {
          loader.next(batch);
          check_form(batch, 2048, 512);
          real += batch.real_tokens;
          for (const auto& [key, pieces] : contents(batch))
            for (const auto& [start, drawn] : pieces)
              for (size_t p = 0; p < drawn.truth.size(); ++p)
                REQUIRE(drawn.truth[p] == made_residue(key.second, start + static_cast<int64_t>(p)));
        }
        if (layout == Layout::kPacked) CHECK(real > 2048 * 100 * 99 / 100);
      }
}

TEST_CASE("threads do not change the batches, and every state resumes exactly") {
  const Scratch scratch;
  const Dataset set = made_set(scratch, protein_lengths(150));
  LoaderOptions options{.seed = 3, .tokens_per_batch = 2048, .pack_window = 50};
  Loader plain(set, options);
  std::vector<Batch> batches(90);
  std::vector<LoaderState> states = {plain.state()};
  for (Batch& batch : batches) {
    plain.next(batch);
    states.push_back(plain.state());
  }
  CHECK(states.back().packer.draws.sets.at(0).epoch >= 2);
  for (const int64_t threads : {1, 8}) {
    options.threads = threads;
    Loader threaded(set, options);
    Batch batch;
    for (size_t i = 0; i < batches.size(); ++i) {
      CHECK(threaded.state() == states[i]);
      threaded.next(batch);
      REQUIRE(same(batch, batches[i]));
    }
  }
  for (size_t from = 0; from < states.size(); ++from) {
    options.threads = from % 3 == 0 ? 2 : 0;
    const LoaderState state = LoaderState::from_integers(states[from].to_integers());
    REQUIRE(state == states[from]);
    Loader resumed(set, options, state);
    Batch batch;
    for (size_t i = from; i < std::min(batches.size(), from + 5); ++i) {
      resumed.next(batch);
      REQUIRE(same(batch, batches[i]));
    }
  }
}

TEST_CASE("ranks share one sequence of batches, and may change in number between states") {
  const Scratch scratch;
  const Dataset set = made_set(scratch, protein_lengths(150));
  LoaderOptions options{.seed = 3, .tokens_per_batch = 2048, .pack_window = 50};
  std::vector<Batch> all(24);
  Loader alone(set, options);
  for (Batch& batch : all) alone.next(batch);
  LoaderState middle;
  Batch batch;
  options.size = 4;
  for (options.rank = 0; options.rank < 4; ++options.rank) {
    Loader loader(set, options);
    for (int64_t i = 0; i < 3; ++i) {
      loader.next(batch);
      REQUIRE(same(batch, all[static_cast<size_t>(4 * i + options.rank)]));
    }
    if (options.rank > 0) CHECK(loader.state() == middle);
    middle = loader.state();
  }
  options.size = 3;
  for (options.rank = 0; options.rank < 3; ++options.rank) {
    Loader loader(set, options, middle);
    for (int64_t i = 0; i < 4; ++i) {
      loader.next(batch);
      REQUIRE(same(batch, all[static_cast<size_t>(12 + 3 * i + options.rank)]));
    }
  }
}

TEST_CASE("crops and masks of a sequence do not depend on how it is packed") {
  const Scratch scratch;
  const Dataset set = made_set(scratch, protein_lengths(120));
  std::map<std::pair<int64_t, int64_t>, std::map<int32_t, Drawn>> reference;
  const auto collect = [&](LoaderOptions options) {
    std::map<std::pair<int64_t, int64_t>, std::map<int32_t, Drawn>> all;
    options.seed = 8;
    options.max_tokens = 512;
    Loader loader(set, options);
    Batch batch;
    while (loader.state().packer.draws.sets.at(0).epoch < 3) {
      loader.next(batch);
      for (auto& [key, pieces] : contents(batch)) all[key].merge(pieces);
    }
    return all;
  };
  reference = collect({.tokens_per_batch = 8192, .pack_window = 10});
  for (const LoaderOptions& options :
       {LoaderOptions{.tokens_per_batch = 512, .pack_window = 1},
        LoaderOptions{.tokens_per_batch = 3072, .pack_window = 37},
        LoaderOptions{.tokens_per_batch = 4096, .layout = Layout::kBshd, .bucketed = true, .pack_window = 33}}) {
    const auto other = collect(options);
    int64_t compared = 0;
    for (const auto& [key, pieces] : other) {
      if (!reference.contains(key)) continue;
      const auto& [start, drawn] = *pieces.begin();
      REQUIRE(reference.at(key).contains(start));
      REQUIRE(reference.at(key).at(start).seen == drawn.seen);
      REQUIRE(reference.at(key).at(start).scored == drawn.scored);
      ++compared;
    }
    CHECK(compared > 200);
  }
}

TEST_CASE("sequences around the limit have 1023, 1024, 1024, 1024 tokens") {
  const Scratch scratch;
  prepare({odd("fasta/around_1022.fasta")}, scratch / "set", {});
  const Dataset set = open_dataset({scratch / "set"}, {});
  for (const Overlong overlong : {Overlong::kCrop, Overlong::kTruncate}) {
    Loader loader(set, {.seed = 1, .tokens_per_batch = 4096, .overlong = overlong, .pack_window = 4});
    Batch batch;
    std::map<int64_t, std::vector<int32_t>> tokens, starts;
    for (int i = 0; i < 50; ++i) {
      loader.next(batch);
      check_form(batch, 4096, 1024);
      for (const Segment& segment : batch.segments) {
        tokens[segment.sequence].push_back(segment.n_tokens);
        starts[segment.sequence].push_back(segment.start);
      }
    }
    for (int64_t i = 0; i < 4; ++i)
      for (const int32_t n : tokens.at(i)) CHECK(n == (i == 0 ? 1023 : 1024));
    const auto [low, high] = std::minmax_element(starts.at(3).begin(), starts.at(3).end());
    CHECK(*low == 0);
    CHECK(*high == (overlong == Overlong::kCrop ? 20 : 0));  // 1042 - 1022, reached within 50 draws with odds of 0.9
  }
  EvalLoader eval(set, {.seed = 1, .tokens_per_batch = 1024});
  Batch batch;
  std::vector<int32_t> tokens;
  while (eval.next(batch)) {
    REQUIRE(batch.segments.size() == 1);
    CHECK(batch.segments[0].start == 0);
    tokens.push_back(batch.segments[0].n_tokens);
  }
  CHECK(tokens == std::vector<int32_t>{1023, 1024, 1024, 1024});
  CHECK_THAT(eval.summary(), ContainsSubstring("2 above 1,022 residues: cut at the end, 21 residues are not used"));
}

TEST_CASE("windows cover every residue of a long sequence and are counted") {
  const Scratch scratch;
  const Dataset set = made_set(scratch, {10, 25, 8, 17, 100, 9});
  const SampleList samples(set, {.max_tokens = 12, .overlong = Overlong::kWindow, .window_stride = 4});  // pieces of 10
  CHECK(samples.size() == 6 + 4 + 2 + 23);
  CHECK(samples.overlong_sequences() == 3);
  std::map<int64_t, std::vector<int>> covered;
  for (int64_t i = 0; i < samples.size(); ++i) {
    const Sample sample = samples.at(0, 0, i);
    CHECK(samples.tokens(0, 0, i) == sample.residues + 2);
    CHECK(sample.start + sample.residues <= set.length(sample.sequence));
    auto& counts = covered[sample.sequence];
    counts.resize(static_cast<size_t>(set.length(sample.sequence)));
    for (int64_t p = 0; p < sample.residues; ++p) ++counts[static_cast<size_t>(sample.start + p)];
  }
  for (const auto& [sequence, counts] : covered)
    for (const int count : counts) CHECK(count >= 1);
  CHECK_THAT(samples.summary(),
             ContainsSubstring("3 above 10 residues: read as overlapping pieces, 35 samples in all"));
}

TEST_CASE("skip leaves the long ones out, says so, and refuses to leave nothing") {
  const Scratch scratch;
  const Dataset set = made_set(scratch, {10, 300, 20, 400});
  Loader loader(set, {.seed = 1, .max_tokens = 128, .tokens_per_batch = 128, .overlong = Overlong::kSkip});
  Batch batch;
  for (int i = 0; i < 20; ++i) {
    loader.next(batch);
    for (const Segment& segment : batch.segments) CHECK((segment.sequence == 0 || segment.sequence == 2));
  }
  CHECK_THAT(loader.summary(), ContainsSubstring("2 above 126 residues: skipped"));
  CHECK_THROWS_AS(Loader(made_set(scratch, {300, 400}, "long.h5"),
                         {.max_tokens = 128, .tokens_per_batch = 128, .overlong = Overlong::kSkip}),
                  DataError);
}

TEST_CASE("crops are uniform over the possible beginnings and differ by epoch") {
  const Scratch scratch;
  const Dataset set = made_set(scratch, {19});
  const SampleList samples(set, {.max_tokens = 12});
  std::array<int, 10> counts{};
  for (int64_t epoch = 0; epoch < 10000; ++epoch) ++counts.at(static_cast<size_t>(samples.at(7, epoch, 0).start));
  double chi2 = 0;
  for (const int count : counts) chi2 += (count - 1000.0) * (count - 1000.0) / 1000.0;
  CHECK(chi2 < 27.9);  // 9 degrees of freedom, 0.999
}

TEST_CASE("evaluation sees every sequence once with fixed masks, on any number of ranks") {
  const Scratch scratch;
  const Dataset set = made_set(scratch, protein_lengths(101));
  LoaderOptions options{.seed = 3, .tokens_per_batch = 2048};
  const auto pass = [&](int64_t size) {
    std::map<std::pair<int64_t, int64_t>, std::map<int32_t, Drawn>> all;
    int64_t batches = -1;
    options.size = size;
    for (options.rank = 0; options.rank < size; ++options.rank) {
      EvalLoader loader(set, options);
      if (batches >= 0) CHECK(loader.batches() == batches);
      batches = loader.batches();
      Batch batch;
      for (int repeat = 0; repeat < 2; ++repeat) {
        int64_t n = 0;
        while (loader.next(batch)) {
          check_form(batch, options.tokens_per_batch, 1024);
          ++n;
          if (repeat == 1)
            for (auto& [key, pieces] : contents(batch)) REQUIRE(all.emplace(key, pieces).second);
        }
        CHECK(n == batches);
      }
    }
    return all;
  };
  const auto alone = pass(1);
  CHECK(alone.size() == 101);
  for (const int64_t size : {2, 3, 50}) {
    const auto shared = pass(size);
    REQUIRE(shared.size() == 101);
    for (const auto& [key, pieces] : shared) CHECK(pieces.begin()->second.seen == alone.at(key).begin()->second.seen);
  }
  // Other budgets pack otherwise but mask alike; training masks are others.
  options.tokens_per_batch = 8192;
  for (const auto& [key, pieces] : pass(1)) CHECK(pieces.begin()->second.seen == alone.at(key).begin()->second.seen);
}

TEST_CASE("tiny peptides give batches that may have nothing to predict") {
  const Scratch scratch;
  prepare({odd("fasta/tiny_peptides.fasta")}, scratch / "set", {});
  const Dataset set = open_dataset({scratch / "set"}, {});
  Loader loader(set, {.seed = 1, .max_tokens = 5, .tokens_per_batch = 128, .masking = {.rate = 0.001}});
  Batch batch;
  int64_t without = 0;
  for (int i = 0; i < 50; ++i) {
    loader.next(batch);
    check_form(batch, 128, 5);
    without += batch.n_scored() == 0 ? 1 : 0;
    CHECK(batch.real_tokens > 120);
  }
  CHECK(without > 30);
}

TEST_CASE("three records serve four ranks: data repeat, in epochs of their own") {
  const Scratch scratch;
  prepare({odd("fasta/three_records.fasta")}, scratch / "set", {});
  const Dataset set = open_dataset({scratch / "set"}, {});
  std::map<std::pair<int64_t, int64_t>, int> seen;
  Batch batch;
  for (int64_t rank = 0; rank < 4; ++rank) {
    Loader loader(set, {.seed = 1, .tokens_per_batch = 1024, .pack_window = 8, .rank = rank, .size = 4});
    for (int i = 0; i < 5; ++i) {
      loader.next(batch);
      CHECK(batch.real_tokens == 16 * 62);
      for (const Segment& segment : batch.segments) CHECK(++seen[{segment.epoch, segment.sequence}] == 1);
    }
  }
}

TEST_CASE("an error in a loader thread reaches next(), again and again, and nothing hangs") {
  const Scratch scratch;
  const Dataset good = made_set(scratch, protein_lengths(50));
  std::string bytes = read_text_file(scratch / "made.h5");
  const auto at =
      bytes.find(std::string({static_cast<char>(made_residue(0, 0)), static_cast<char>(made_residue(0, 1)),
                              static_cast<char>(made_residue(0, 2)), static_cast<char>(made_residue(0, 3)),
                              static_cast<char>(made_residue(0, 4)), static_cast<char>(made_residue(0, 5))}));
  REQUIRE(at != std::string::npos);
  bytes[at] = static_cast<char>(bytes[at] == 4 ? 5 : 4);
  scratch.write("bad.h5", bytes);
  Loader loader(open_dataset({scratch / "bad.h5"}, {}), {.tokens_per_batch = 1024, .threads = 2});
  Batch batch;
  CHECK_THROWS_WITH(loader.next(batch), ContainsSubstring("bad.h5") && ContainsSubstring("checksum"));
  CHECK_THROWS_AS(loader.next(batch), DataError);
}

TEST_CASE("a state of other data begins the next epoch; a damaged one is refused") {
  const Scratch scratch;
  const Dataset set = made_set(scratch, protein_lengths(100)),
                other = made_set(scratch, protein_lengths(101), "other.h5");
  const LoaderOptions options{.seed = 3, .tokens_per_batch = 2048, .pack_window = 50};
  Loader loader(set, options);
  Batch batch;
  for (int i = 0; i < 7; ++i) loader.next(batch);
  Loader moved(other, options, loader.state());
  moved.next(batch);
  for (const Segment& segment : batch.segments)
    CHECK(segment.epoch == loader.state().packer.draws.sets.at(0).epoch + 1);
  CHECK(moved.state().packer.batches == 8);

  std::vector<int64_t> integers = loader.state().to_integers();
  CHECK_THROWS_AS(LoaderState::from_integers(std::span(integers).first(integers.size() - 1)), CheckpointError);
  CHECK_THROWS_AS(LoaderState::from_integers({}), CheckpointError);
  integers.push_back(0);
  CHECK_THROWS_AS(LoaderState::from_integers(integers), CheckpointError);
  integers.pop_back();
  integers[11] = int64_t{1} << 60;  // number of draws that wait
  CHECK_THROWS_AS(LoaderState::from_integers(integers), CheckpointError);
}

TEST_CASE("a state with batches of no samples or fewer is refused") {
  const Scratch scratch;
  const Dataset set = made_set(scratch, protein_lengths(100));
  Loader loader(set,
                {.seed = 3, .tokens_per_batch = 2048, .layout = Layout::kBshd, .bucketed = true, .pack_window = 50});
  Batch batch;
  loader.next(batch);
  REQUIRE_FALSE(loader.state().packer.groups.empty());
  std::vector<int64_t> integers = loader.state().to_integers();
  CHECK(LoaderState::from_integers(integers) == loader.state());
  for (const int64_t group : {0, -1, -999999998}) {
    integers.back() = group;
    CHECK_THROWS_AS(LoaderState::from_integers(integers), CheckpointError);
  }
}

TEST_CASE("where the system gives fewer threads than wanted the batches are the same") {
  const Scratch scratch;
  const Dataset set = made_set(scratch, protein_lengths(150));
  LoaderOptions options{.seed = 3, .tokens_per_batch = 2048, .pack_window = 50};
  std::vector<Batch> batches(12);
  Loader plain(set, options);
  for (Batch& batch : batches) plain.next(batch);
  options.threads = 8;
  for (const int64_t most : {0, 3}) {
    INFO(most);
    const int64_t before = threads_of_process();
    std::optional<Loader> loader;
    {
      const FewThreads few(most);
      loader.emplace(set, options);
    }
    CHECK(threads_of_process() - before <= most);
    CHECK((most == 0 || threads_of_process() > before));
    Batch batch;
    for (const Batch& expected : batches) {
      loader->next(batch);
      REQUIRE(same(batch, expected));
    }
    CHECK(loader->state() == plain.state());
  }
}

TEST_CASE("a tiny set goes on past 2^24 epochs, in loader threads too") {
  const Scratch scratch;
  const Dataset set = made_set(scratch, {60, 70, 1500});
  LoaderOptions options{.seed = 3, .tokens_per_batch = 2048, .pack_window = 8};
  constexpr int64_t kPeriod = int64_t{1} << 24;
  LoaderState state = Loader(set, options).state();
  state.packer.draws.sets.at(0).epoch = kPeriod - 2;
  for (options.threads = 0; options.threads < 3; ++options.threads) {
    Loader loader(set, options, state);
    Batch batch;
    for (int i = 0; i < 10; ++i) loader.next(batch);
    CHECK(loader.state().packer.draws.sets.at(0).epoch > kPeriod);
  }
  const SampleList samples(set, {.max_tokens = 12});
  for (const int64_t epoch : {int64_t{0}, int64_t{7}, kPeriod - 1})
    CHECK(samples.at(3, epoch + kPeriod, 2).start == samples.at(3, epoch, 2).start);
}

TEST_CASE("epochs() follows the samples that were given out") {
  const Scratch scratch;
  Loader loader(made_set(scratch, std::vector<int64_t>(100, 62)),
                {.max_tokens = 640, .tokens_per_batch = 640, .pack_window = 30});
  CHECK(loader.state().epochs() == 0);
  Batch batch;
  for (int i = 1; i <= 25; ++i) {
    loader.next(batch);
    CHECK(loader.state().epochs() == Approx(0.1 * i));
  }
}

#ifndef __SANITIZE_ADDRESS__  // which keeps what was freed
TEST_CASE("memory is the index and does not grow with use") {
  const Scratch scratch;
  const std::vector<int64_t> lengths(200000, 120);
  {
    ShardContent content;
    content.last = true;
    content.tokens.assign(200000 * 120, 5);
    content.lengths.assign(200000, 120);
    content.ids.assign(200000, 'x');
    content.id_offsets.resize(200001);
    for (int64_t i = 0; i <= 200000; ++i) content.id_offsets[static_cast<size_t>(i)] = i;
    write_shard(scratch / "made.h5", content);
  }
  const int64_t page = ::sysconf(_SC_PAGESIZE);
  const int64_t before = resident_pages() * page;
  const Dataset set = open_dataset({scratch / "made.h5"}, {});
  Loader loader(set, {.seed = 1, .tokens_per_batch = 8192, .threads = 2});
  Batch batch;
  for (int i = 0; i < 300; ++i) loader.next(batch);
  const int64_t early = resident_pages() * page;
  CHECK(early - before < 16 * 200000 + (4 << 20));
  for (int i = 0; i < 6000; ++i) loader.next(batch);  // twice through the data
  CHECK(resident_pages() * page - early < early / 50);
}
#endif
