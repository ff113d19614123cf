// Saving while training goes on: same bytes, errors that are passed on, and what happens without memory for the copy.
#include "support/background_save.h"

#include <pthread.h>

#include <new>

namespace esm::test {
namespace {

using checkpoint::Content;
using checkpoint::HookedFileSystem;
using train::BackgroundSave;
using train::HostCopy;

constexpr auto kBackground = BackgroundSave::Mode::kBackground;

TEST_CASE("a checkpoint written while training goes on equals one that training waited for") {
  check_background_save(Context{});
}

TEST_CASE("copies survive changes of the tensors; rounds of the same tensors take no more memory") {
  HostCopy copy({});
  const at::Tensor small = at::full({5}, 3, at::kInt), large = at::full({(64 << 20) / 4 + 1}, 1.0f);
  const auto round = [&](float value) {
    copy.clear();
    const auto first = copy.add(small), second = copy.add(large), third = copy.add(small);
    copy.wait();
    REQUIRE(first.size() == small.nbytes());
    REQUIRE(second.size() == large.nbytes());
    CHECK(std::memcmp(first.data(), small.data_ptr(), first.size()) == 0);
    CHECK(std::memcmp(third.data(), small.data_ptr(), third.size()) == 0);
    at::Tensor(large).fill_(value + 1);
    const at::Tensor expected = at::full(large.sizes(), value);
    CHECK(std::memcmp(second.data(), expected.data_ptr(), second.size()) == 0);
  };
  round(1);
  const int64_t held = copy.held_bytes();
  CHECK(held >= static_cast<int64_t>(large.nbytes()));
  round(2);
  round(3);
  CHECK(copy.held_bytes() == held);
  copy.release();
  CHECK(copy.held_bytes() == 0);
}

TEST_CASE("an error of the writer comes out of finish(), and the next save works") {
  const ScratchFolder scratch("esm-save");
  bool broken = true;
  HookedFileSystem files([&](const std::string& operation, const std::string& path, auto) {
    if (broken && operation == "sync") throw checkpoint::DiskFullError("cannot write " + path + ": the disk is full");
  });
  checkpoint::CheckpointStore store(scratch.path(), checkpoint::quiet({}, &files));
  BackgroundSave saving(store, {});
  const Content first(1), second(2), third(3);
  const auto now = BackgroundSave::Clock::now();
  for (const auto mode : {kBackground, BackgroundSave::Mode::kWait}) {
    saving.start([&](HostCopy*) { return first.request(); }, mode, now);
    CHECK_THROWS_AS(saving.start([&](HostCopy*) { return second.request(); }, mode, now), InternalError);
    CHECK_THROWS_AS(saving.finish(), checkpoint::DiskFullError);
    CHECK_FALSE(saving.pending());
  }
  broken = false;
  saving.start([&](HostCopy*) { return second.request(); }, kBackground, now);
  CHECK(saving.finish().step == 2);
  CHECK(second.equals(*store.newest_complete()));
  broken = true;
  saving.start([&](HostCopy*) { return third.request(); }, BackgroundSave::Mode::kWait, now);
  // Never asked for: said in the log when it is let go.
}

TEST_CASE("without memory for the copy checkpoints are written at once") {
  const ScratchFolder scratch("esm-save");
  checkpoint::CheckpointStore store(scratch.path(), checkpoint::quiet());
  BackgroundSave saving(store, {});
  int with_copy = 0;
  for (const int64_t step : {1, 2}) {
    const Content content(step);
    saving.start(
        [&](HostCopy* copy) {
          if (copy != nullptr) {
            ++with_copy;
            throw std::bad_alloc();
          }
          return content.request();
        },
        kBackground, BackgroundSave::Clock::now());
    CHECK(saving.done());
    const train::SaveOutcome saved = saving.finish();
    CHECK(saved.step == step);
    CHECK(saved.stalled >= saved.seconds);
    CHECK(content.equals(checkpoint::OpenCheckpoint(saved.result.path)));
  }
  CHECK(with_copy == 1);  // not tried again
}

/// While one lives no thread can be started: none has room for a stack as large as it is told to have.
class NoThreads {
 public:
  NoThreads() {
    REQUIRE(::pthread_getattr_default_np(&before_) == 0);
    set(size_t{1} << 50);
  }
  ~NoThreads() {
    size_t size = 0;
    ::pthread_attr_getstacksize(&before_, &size);
    set(size);
    ::pthread_attr_destroy(&before_);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  static void set(size_t stack_bytes) {
    pthread_attr_t attributes;
    ::pthread_attr_init(&attributes);
    ::pthread_attr_setstacksize(&attributes, stack_bytes);
    ::pthread_setattr_default_np(&attributes);
    ::pthread_attr_destroy(&attributes);
  }
  pthread_attr_t before_;
};

TEST_CASE("without a thread for the writer checkpoints are written at once") {
  const ScratchFolder scratch("esm-save");
  checkpoint::CheckpointStore store(scratch.path(), checkpoint::quiet());
  BackgroundSave saving(store, {});
  int with_copy = 0;
  const auto save = [&](int64_t step) {
    const Content content(step);
    saving.start(
        [&](HostCopy* copy) {
          with_copy += copy != nullptr ? 1 : 0;
          return content.request();
        },
        kBackground, BackgroundSave::Clock::now());
    CHECK(saving.done());
    CHECK(saving.finish().step == step);
    CHECK(content.equals(checkpoint::OpenCheckpoint(store.step_path(step))));
  };
  {
    const NoThreads none;
    save(1);
  }
  save(2);
  CHECK(with_copy == 1);  // not tried again
}

}  // namespace
}  // namespace esm::test
