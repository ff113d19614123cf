// A checkpoint that is written while training goes on equals one for which training waited.
#pragma once
#include <atomic>
#include <filesystem>
#include <future>
#include <map>
#include <string>

#include "base/files.h"
#include "base/hash.h"
#include "support/catch.h"
#include "support/trained.h"
#include "train/background_save.h"
#include "unit/checkpoint/fixtures.h"

namespace esm::test {

inline std::map<std::string, std::string> tensor_file_hashes(const std::string& checkpoint) {
  std::map<std::string, std::string> hashes;
  for (const auto& entry : std::filesystem::directory_iterator(checkpoint))
    if (entry.path().extension() == ".safetensors")
      hashes[entry.path().filename().string()] = hash_file(entry.path().string());
  return hashes;
}

/// Two saves one after the other, with steps between copy and writing, in every format of the state.
inline void check_background_save(const Context& context) {
  using checkpoint::HookedFileSystem;
  for (const precision::StateFormats& formats : all_state_formats()) {
    const ScratchFolder waited("esm-waited"), beside("esm-beside");
    Trained model(context, {.formats = formats, .steps = 2});
    std::promise<void> go[2];
    std::shared_future<void> gone[2]{go[0].get_future().share(), go[1].get_future().share()};
    std::atomic<int> save{0};
    std::atomic<bool> began{false};
    HookedFileSystem files([&](const std::string& operation, const auto&...) {
      if (operation != "write") return;
      began = true;
      gone[save].wait();
    });
    checkpoint::CheckpointStore store(beside.path(), checkpoint::quiet({.keep_last = 2}, &files));
    train::BackgroundSave saving(store, context);
    int64_t steps = 2;
    for (; save < 2; ++save) {
      const std::string expected = model.save(waited.path());
      const auto before = model.state();
      saving.start([&](train::HostCopy* copy) { return model.request(copy); }, train::BackgroundSave::Mode::kBackground,
                   train::BackgroundSave::Clock::now());
      CHECK(saving.pending());
      CHECK_FALSE(saving.done());
      model.train(steps, 3);
      CHECK(model.state() != before);
      CHECK_FALSE(saving.done());  // the writer waits for us, and the steps did not wait for it
      go[save].set_value();
      const train::SaveOutcome saved = saving.finish();
      CHECK(began);
      CHECK_FALSE(saving.pending());
      CHECK(saved.step == steps);
      CHECK(saved.result.path != expected);
      CHECK(tensor_file_hashes(saved.result.path) == tensor_file_hashes(expected));
      CHECK(tensor_file_hashes(expected).size() == 2);
      steps += 3;
    }
  }
}

}  // namespace esm::test
