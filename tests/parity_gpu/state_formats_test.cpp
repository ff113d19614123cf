// Low-byte optimizer state on a CUDA device: equal to the CPU's bit for bit, replayed or not, saved and resumed.
#include "base/files.h"
#include "ops/update.h"
#include "parity_gpu/device.h"
#include "support/background_save.h"
#include "support/catch.h"
#include "support/random_tensor.h"
#include "support/trained.h"

namespace esm::test {

using nn::Role;
using precision::MasterFormat;
using precision::MomentFormat;
using precision::StateFormats;

namespace {

/// Attention with deterministic gradients.
Trained trained(StateFormats formats, int64_t steps, bool graphs = true) {
  return {
      gpu(),
      {.formats = formats, .steps = steps, .head_dim = 16, .attention = ops::AttentionKind::kSimple, .graphs = graphs}};
}

/// One update from gradients of our own, without clipping.
void update(Trained& t, uint64_t seed) {
  for (nn::UnitStorage* unit : t.model.units())
    for (size_t i = 0; i < unit->entries().size(); ++i) {
      const at::Tensor view = unit->view(Role::kGrad, i);
      view.copy_(random_tensor(seed + i, view.sizes()));
    }
  const double sums[3] = {100, 50, 7};
  const at::Tensor losses = at::from_blob(const_cast<double*>(sums), {3}, at::kDouble).to(ops::device_of(t.context));
  t.optimizer.update(losses, 3e-3, /*clip_norm=*/0);
  synchronize(t.context);
}

}  // namespace

TEST_CASE("updates on the device are those of the CPU, bit for bit, in every format") {
  for (const StateFormats& formats : all_state_formats()) {
    CAPTURE(static_cast<int>(formats.master), static_cast<int>(formats.moments));
    Trained here(Context{}, {.formats = formats, .head_dim = 16}), there = trained(formats, 0);
    // Vocabularies are padded otherwise, so parameters are compared one by one.
    const auto parameters = [](Trained& t) {
      std::vector<std::vector<uint8_t>> all;
      for (const nn::UnitStorage* unit : t.model.units())
        for (size_t i = 0; i < unit->entries().size(); ++i)
          for (const Role role : kStateRoles)
            if (unit->has(role)) all.push_back(bytes(unit->view(role, i)));
      return all;
    };
    CHECK(parameters(here) == parameters(there));
    const auto before = parameters(here);
    for (uint64_t step = 1; step <= 6; ++step) {
      update(here, 100 * step);
      update(there, 100 * step);
    }
    CHECK(parameters(here) == parameters(there));
    CHECK(parameters(here) != before);
  }
}

TEST_CASE("on the device two halves train as FP32 weights do, to the last bit, replayed or not") {
  for (const MomentFormat moments : {MomentFormat::kF32, MomentFormat::kBF16, MomentFormat::kE4M3}) {
    Trained whole = trained({MasterFormat::kF32, moments}, 12),
            halves = trained({MasterFormat::kBF16Remainder, moments}, 12),
            plain = trained({MasterFormat::kBF16Remainder, moments}, 12, /*graphs=*/false);
    CHECK(whole.losses == halves.losses);
    CHECK(whole.weights() == halves.weights());
    CHECK(plain.losses == halves.losses);
    CHECK(plain.state() == halves.state());
  }
}

TEST_CASE("the device's state is saved, and training goes on as if nothing had been, in every format") {
  for (const StateFormats& formats : all_state_formats()) {
    CAPTURE(static_cast<int>(formats.master), static_cast<int>(formats.moments));
    const ScratchFolder scratch("formats-gpu");
    Trained straight = trained(formats, 5);
    const checkpoint::OpenCheckpoint opened(straight.save(scratch.path()));
    Trained resumed = trained(formats, 1);
    train::restore(opened, resumed.model, resumed.optimizer);
    CHECK(resumed.state() == straight.state());
    resumed.losses.clear();
    straight.losses.clear();
    resumed.train(5, 6);
    straight.train(5, 6);
    CHECK(resumed.losses == straight.losses);
    CHECK(resumed.state() == straight.state());
  }
}

TEST_CASE("a checkpoint of the device's state written while training goes on equals one that training waited for") {
  check_background_save(gpu());
}

}  // namespace esm::test
