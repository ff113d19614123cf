// The state of delayed scales in a checkpoint: it comes back, and counts that no run can have are refused.
#include <cstring>

#include "base/files.h"
#include "checkpoint/store.h"
#include "support/batches.h"
#include "support/catch.h"
#include "support/models.h"
#include "support/steps.h"
#include "support/torch.h"
#include "train/checkpointing.h"

namespace esm::test {
namespace {

using checkpoint::TensorOut;

struct Scaled {
  Context context{.threads = 1};
  models::Esm2 model =
      random_model(small_config(1, 2, 32), {.precision = precision::Precision::kFp8Delayed, .tokens_per_batch = 128});
  train::Optimizer optimizer{context, model.units(), {}, {}};

  void step() {
    one_step(context, model, optimizer, make_batch({random_row(static_cast<uint64_t>(optimizer.updates()), 60)}), 1e-3);
    model.scales()->close_step();
  }
  checkpoint::SaveRequest request() {
    train::TrainState state;
    state.step = state.updates = optimizer.updates();
    const data::LoaderState position{.packer = {}, .samples = {}, .fingerprint = std::string(32, '0')};
    train::RunConfig config;
    config.model = model.config();
    const train::Carried carried;
    return train::save_request({model, optimizer, state, position, config, carried});
  }
  std::vector<std::vector<uint8_t>> scale_bytes() {
    std::vector<std::vector<uint8_t>> all;
    for (const auto& [name, tensor] : model.scales()->state()) all.push_back(bytes(tensor));
    return all;
  }
};

template <class Int>
void plant(checkpoint::SaveRequest& request, std::string_view name, size_t index, Int value) {
  for (TensorOut& tensor : request.scale_state) {
    if (tensor.name != name) continue;
    std::vector<std::byte> bytes(tensor.bytes.begin(), tensor.bytes.end());
    REQUIRE(bytes.size() >= (index + 1) * sizeof value);
    std::memcpy(bytes.data() + index * sizeof value, &value, sizeof value);
    tensor.bytes = {};
    tensor.make = [bytes] { return bytes; };
    return;
  }
  FAIL("no " << name);
}

}  // namespace

TEST_CASE("a checkpoint brings back delayed scales; counts that no run can have are refused by name") {
  const ScratchFolder scratch("scales");
  checkpoint::CheckpointStore store(scratch.path(), {.report = [](const std::string&) {}});
  Scaled original;
  original.step();
  original.step();
  REQUIRE(bytes(original.model.scales()->state().back().second)[0] == 2);
  int64_t step = 2;
  const auto saved = [&](const auto& edit) {
    checkpoint::SaveRequest request = original.request();
    request.manifest.step = step++;
    edit(request);
    return store.save(request).path;
  };
  const auto restored_bytes = [&](const std::string& path) {
    Scaled other;
    train::restore(checkpoint::OpenCheckpoint(path), other.model, other.optimizer);
    return other.scale_bytes();
  };
  CHECK(restored_bytes(saved([](auto&) {})) == original.scale_bytes());

  const auto check_refused = [&](std::string_view name, size_t index, auto value) {
    CAPTURE(name, value);
    const std::string path = saved([&](checkpoint::SaveRequest& request) { plant(request, name, index, value); });
    CHECK_THROWS_WITH(restored_bytes(path),
                      ContainsSubstring("'scale_state/" + std::string(name) + "' holds " + std::to_string(value)));
  };
  for (const int64_t steps : {int64_t{-1}, int64_t{-1024}, std::numeric_limits<int64_t>::min(), int64_t{1} << 62,
                              std::numeric_limits<int64_t>::max()})
    check_refused("amax.steps", 0, steps);
  for (const int32_t count : {-1, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()})
    check_refused("amax.nonfinite", 1, count);

  // The largest ones that are accepted can be gone on from.
  Scaled late;
  const std::string path = saved([](checkpoint::SaveRequest& request) {
    plant(request, "amax.steps", 0, (int64_t{1} << 62) - 1);
    plant(request, "amax.nonfinite", 1, (int32_t{1} << 30) - 1);
  });
  train::restore(checkpoint::OpenCheckpoint(path), late.model, late.optimizer);
  late.step();
  CHECK(*static_cast<const int64_t*>(late.model.scales()->state().back().second.data_ptr()) == int64_t{1} << 62);
}

}  // namespace esm::test
