#include "data/loader.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <numeric>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "data/batch_maker.h"

namespace esm::data {
namespace {

PackerOptions packer_options(const LoaderOptions& options, const BatchMaker& maker) {
  PackerOptions packing;
  packing.budget_tokens = options.tokens_per_batch;
  packing.max_tokens = options.max_tokens;
  packing.window = options.pack_window;
  packing.layout = options.layout;
  packing.bucketed = options.bucketed;
  packing.sets = maker.drawn_sets();
  packing.seed = options.seed;
  packing.tokens_of = [&maker](const Draw& draw) { return maker.tokens_of(draw); };
  return packing;
}

std::vector<TrainingSet> one_set(Dataset dataset) {
  std::vector<TrainingSet> sets;
  sets.push_back({.name = "data", .data = std::move(dataset)});
  return sets;
}

BatchMaker batch_maker(std::vector<TrainingSet> sets, const LoaderOptions& options, bool training) {
  return {std::move(sets),
          Masker(options.masking, options.seed, training ? RandomStream::kMask : RandomStream::kValidMask),
          {.samples = {.max_tokens = options.max_tokens,
                       .overlong = training ? options.overlong : Overlong::kTruncate,
                       .window_stride = options.window_stride},
           .seed = options.seed,
           .budget_tokens = options.tokens_per_batch,
           .shuffled = training}};
}

std::vector<int64_t> samples_of(const BatchMaker& maker) {
  std::vector<int64_t> samples;
  for (const DrawnSet& set : maker.drawn_sets()) samples.push_back(set.samples);
  return samples;
}

// Plans the batches of all ranks and leaves that of `rank` in `plan`; false when none of them exists.
bool plan_round(Packer& packer, const LoaderOptions& options, BatchPlan& plan) {
  BatchPlan other;
  bool any = false;
  plan.samples.clear();
  for (int64_t rank = 0; rank < options.size; ++rank) any |= packer.next(rank == options.rank ? plan : other);
  return any;
}

PackerState starting_state(const LoaderState& state, const BatchMaker& maker) {
  const std::vector<int64_t> samples = samples_of(maker);
  if (state.samples == samples && state.fingerprint == maker.fingerprint()) return state.packer;
  int64_t epoch = 0;
  for (const SetPosition& at : state.packer.draws.sets) epoch = std::max(epoch, at.epoch + 1);
  log::warn(
      "the training data are not those of the checkpoint ({} samples then, {} now): epoch {} begins with the new ones",
      std::accumulate(state.samples.begin(), state.samples.end(), int64_t{0}),
      std::accumulate(samples.begin(), samples.end(), int64_t{0}), epoch);
  PackerState fresh;
  fresh.batches = state.packer.batches;
  fresh.draws.draws = state.packer.draws.draws;
  fresh.draws.sets.assign(samples.size(), {.epoch = epoch, .cursor = 0});
  return fresh;
}

}  // namespace

LoaderOptions loader_options(const DataConfig& config, uint64_t seed, int64_t rank, int64_t size) {
  LoaderOptions options;
  options.seed = seed;
  options.max_tokens = config.max_tokens;
  options.tokens_per_batch = config.tokens_per_batch;
  options.layout = config.layout;
  options.bucketed = config.bucketed;
  options.overlong = config.overlong;
  options.window_stride = config.window_stride;
  options.pack_window = config.pack_window;
  options.masking = config.masking;
  options.rank = rank;
  options.size = size;
  options.threads = config.loader_threads;
  options.prefetch = config.prefetch;
  return options;
}

// --- Training -----------------------------------------------------------------------------------------------------
//
// Each loader thread, in turn, plans the next round under the mutex (planning is sequential by nature and cheap), then
// fills its batch outside of it. Slot `ticket % prefetch` receives the batch; next() takes the slots in order.

class Loader::Impl {
 public:
  Impl(std::vector<TrainingSet> sets, LoaderOptions options, const LoaderState* state)
      : options_(std::move(options)),
        maker_(batch_maker(std::move(sets), options_, true)),
        packer_(packer_options(options_, maker_), state == nullptr ? PackerState{} : starting_state(*state, maker_)),
        summary_(maker_.summary()),
        delivered_(packer_.state()),
        slots_(static_cast<size_t>(options_.threads > 0 ? options_.prefetch : 0)) {
    ESM_CHECK(options_.rank >= 0 && options_.rank < options_.size, "rank {} of {}", options_.rank, options_.size);
    start_threads();
  }

  ~Impl() { stop_threads(); }

  void next(Batch& batch) {
    if (threads_.empty()) {
      plan_round(packer_, options_, plan_);
      maker_.fill(plan_, batch);
      return;
    }
    std::unique_lock lock(mutex_);
    Slot& slot = slots_[static_cast<size_t>(consumed_) % slots_.size()];
    changed_.wait(lock, [&] { return slot.ready; });
    if (slot.error)
      std::rethrow_exception(slot.error);  // stays: no later batch may be given out as if it were this one
    std::swap(batch, slot.batch);
    std::swap(delivered_, slot.state);
    slot.ready = false;
    ++consumed_;
    lock.unlock();
    changed_.notify_all();
  }

  LoaderState state() const {
    return {threads_.empty() ? packer_.state() : delivered_, samples_of(maker_), maker_.fingerprint()};
  }
  std::vector<DrawnSoFar> drawn() const {
    const LoaderState now = state();
    std::vector<DrawnSoFar> sets;
    if (now.samples.size() == 1) return sets;
    for (size_t i = 0; i < now.samples.size(); ++i) {
      const SetTotals& given = now.packer.given[i];
      sets.push_back({maker_.names()[i], given.sequences, given.tokens, now.epochs(i)});
    }
    return sets;
  }
  const std::string& summary() const { return summary_; }

 private:
  struct Slot {
    Batch batch;
    PackerState state;
    std::exception_ptr error;
    bool ready = false;
  };

  // The batches do not depend on the number of threads, so fewer than wanted will do, and even none.
  void start_threads() {
    try {
      threads_.reserve(static_cast<size_t>(options_.threads));
      while (std::ssize(threads_) < options_.threads) threads_.emplace_back([this] { work(); });
    } catch (const std::system_error& error) {
      log::warn("only {} of {} loader threads (data.loader_threads) could be started: {}", threads_.size(),
                options_.threads, error.what());
    } catch (...) {
      stop_threads();
      throw;
    }
  }
  void stop_threads() {
    {
      const std::scoped_lock lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  void work() {
    BatchPlan plan;
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stopping_ || planned_ < consumed_ + std::ssize(slots_); });
      if (stopping_) return;
      Slot& slot = slots_[static_cast<size_t>(planned_++) % slots_.size()];
      std::exception_ptr error;
      try {
        plan_round(packer_, options_, plan);
        slot.state = packer_.state();
        lock.unlock();
        maker_.fill(plan, slot.batch);
      } catch (...) {
        error = std::current_exception();
      }
      if (!lock.owns_lock()) lock.lock();
      slot.error = error;
      slot.ready = true;
      changed_.notify_all();
    }
  }

  const LoaderOptions options_;
  const BatchMaker maker_;
  Packer packer_;
  const std::string summary_;
  BatchPlan plan_;
  PackerState delivered_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Slot> slots_;
  int64_t planned_ = 0, consumed_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

Loader::Loader(Dataset dataset, LoaderOptions options) : Loader(one_set(std::move(dataset)), std::move(options)) {}
Loader::Loader(Dataset dataset, LoaderOptions options, const LoaderState& state)
    : Loader(one_set(std::move(dataset)), std::move(options), state) {}
Loader::Loader(std::vector<TrainingSet> sets, LoaderOptions options)
    : impl_(std::make_unique<Impl>(std::move(sets), std::move(options), nullptr)) {}
Loader::Loader(std::vector<TrainingSet> sets, LoaderOptions options, const LoaderState& state)
    : impl_(std::make_unique<Impl>(std::move(sets), std::move(options), &state)) {}
Loader::~Loader() = default;
Loader::Loader(Loader&&) noexcept = default;
Loader& Loader::operator=(Loader&&) noexcept = default;
void Loader::next(Batch& batch) { impl_->next(batch); }
LoaderState Loader::state() const { return impl_->state(); }
const std::string& Loader::summary() const { return impl_->summary(); }
std::vector<DrawnSoFar> Loader::drawn() const { return impl_->drawn(); }

// --- Evaluation ---------------------------------------------------------------------------------------------------

class EvalLoader::Impl {
 public:
  Impl(Dataset dataset, LoaderOptions options)
      : options_(evaluation_options(std::move(options))),
        maker_(batch_maker(one_set(std::move(dataset)), options_, false)),
        summary_(maker_.summary()) {
    begin_pass();
    for (BatchPlan plan; plan_round(*packer_, options_, plan);) ++batches_;
    begin_pass();
  }

  int64_t batches() const { return batches_; }
  bool next(Batch& batch) {
    if (done_ == batches_) {
      begin_pass();
      return false;
    }
    plan_round(*packer_, options_, plan_);
    maker_.fill(plan_, batch);
    ++done_;
    return true;
  }
  const std::string& summary() const { return summary_; }

 private:
  static LoaderOptions evaluation_options(LoaderOptions options) {
    options.layout = Layout::kPacked;
    options.bucketed = false;
    return options;
  }
  void begin_pass() {
    PackerOptions packing = packer_options(options_, maker_);
    packing.epochs = 1;
    packer_.emplace(std::move(packing));
    done_ = 0;
  }

  const LoaderOptions options_;
  const BatchMaker maker_;
  const std::string summary_;
  std::optional<Packer> packer_;
  BatchPlan plan_;
  int64_t batches_ = 0, done_ = 0;
};

EvalLoader::EvalLoader(Dataset dataset, LoaderOptions options)
    : impl_(std::make_unique<Impl>(std::move(dataset), std::move(options))) {}
EvalLoader::~EvalLoader() = default;
EvalLoader::EvalLoader(EvalLoader&&) noexcept = default;
EvalLoader& EvalLoader::operator=(EvalLoader&&) noexcept = default;
int64_t EvalLoader::batches() const { return impl_->batches(); }
bool EvalLoader::next(Batch& batch) { return impl_->next(batch); }
const std::string& EvalLoader::summary() const { return impl_->summary(); }

}  // namespace esm::data
