// Models whose optimizer state is kept in few bytes: what they hold, what a checkpoint holds, and that it all comes
// back.
#include "base/files.h"
#include "support/catch.h"
#include "support/trained.h"
#include "train/setup.h"

namespace esm::test {

using nn::Role;
using precision::MasterFormat;
using precision::MomentFormat;
using precision::StateFormats;

namespace {

Trained trained(StateFormats formats, int64_t steps, uint64_t seed = 9) {
  return {Context{}, {.formats = formats, .steps = steps, .seed = seed}};
}

int64_t state_bytes(StateFormats formats) {
  Trained some = trained(formats, 1);
  int64_t total = 0;
  for (const std::vector<uint8_t>& buffer : some.state()) total += static_cast<int64_t>(buffer.size());
  return total;
}

}  // namespace

TEST_CASE("a model holds what its formats say") {
  Trained some = trained({}, 0);
  int64_t elements = 0;
  for (const nn::UnitStorage* unit : some.model.units()) elements += unit->flat_numel();
  CHECK(state_bytes({}) == elements * (2 + 4 + 8));
  CHECK(state_bytes({MasterFormat::kBF16Remainder, MomentFormat::kBF16}) == elements * (2 + 2 + 4));
  CHECK(state_bytes({MasterFormat::kBF16, MomentFormat::kE4M3}) == elements * (2 + 2) + elements / 128 * 8);
  CHECK_THROWS_AS(nn::UnitStorage({}, "u", {{.name = "w", .shape = {4}}}, precision::Precision::kFp32, true,
                                  {.master = MasterFormat::kBF16}),
                  InternalError);
}

TEST_CASE("weights go in and come out, and initial weights are the same in every format") {
  for (const StateFormats& formats : all_state_formats()) {
    Trained low = trained(formats, 0), plain = trained({}, 0);
    const bool rounded = formats.master == MasterFormat::kBF16;
    CHECK((low.weights() == plain.weights()) == !rounded);
    for (size_t u = 0; u < plain.model.units().size(); ++u)
      CHECK(bytes(low.model.units()[u]->flat(Role::kCompute)) == bytes(plain.model.units()[u]->flat(Role::kCompute)));
    nn::UnitStorage& unit = *low.model.units()[1];
    const at::Tensor some = at::full(unit.entries()[0].spec.shape, 1.0f + 0x1p-20f);
    unit.set_weights(0, some);
    CHECK(values(unit.weights(0)) == values(rounded ? at::full(some.sizes(), 1.0f) : some));
    CHECK(values(unit.view(Role::kCompute, 0)) == values(at::full(some.sizes(), 1.0f)));
  }
}

TEST_CASE("two halves and FP32 weights train alike to the last bit, the FP32 bias of the head included") {
  for (const MomentFormat moments : {MomentFormat::kF32, MomentFormat::kBF16, MomentFormat::kE4M3}) {
    Trained whole = trained({MasterFormat::kF32, moments}, 30),
            halves = trained({MasterFormat::kBF16Remainder, moments}, 30);
    CHECK(whole.losses == halves.losses);
    CHECK(whole.weights() == halves.weights());
    CHECK(whole.weights() != trained({MasterFormat::kF32, moments}, 29).weights());
  }
}

TEST_CASE("a checkpoint holds every format in its own type, and training goes on as if nothing had been") {
  for (const StateFormats& formats : all_state_formats()) {
    CAPTURE(static_cast<int>(formats.master), static_cast<int>(formats.moments));
    const ScratchFolder scratch("formats");
    Trained straight = trained(formats, 5);
    const std::string path = straight.save(scratch.path());
    const checkpoint::OpenCheckpoint opened(path);
    const DType weight = formats.master == MasterFormat::kBF16 ? DType::kBF16 : DType::kF32;
    const DType moment = formats.moments == MomentFormat::kF32    ? DType::kF32
                         : formats.moments == MomentFormat::kBF16 ? DType::kBF16
                                                                  : DType::kF8E4M3;
    const size_t parameters = opened.tensors(checkpoint::Role::kParameter).size();
    const size_t scales = moment == DType::kF8E4M3 ? parameters : 0;
    for (const auto* tensor : opened.tensors(checkpoint::Role::kParameter)) CHECK(tensor->dtype == weight);
    for (const auto* tensor : opened.tensors(checkpoint::Role::kExpAvg)) CHECK(tensor->dtype == moment);
    for (const auto* tensor : opened.tensors(checkpoint::Role::kExpAvgSq)) CHECK(tensor->dtype == moment);
    CHECK(opened.tensors(checkpoint::Role::kExpAvgScale).size() == scales);
    CHECK(opened.tensors(checkpoint::Role::kExpAvgSqScale).size() == scales);

    int64_t tensor_bytes = 0;
    for (const auto role : {checkpoint::Role::kParameter, checkpoint::Role::kExpAvg, checkpoint::Role::kExpAvgSq,
                            checkpoint::Role::kExpAvgScale, checkpoint::Role::kExpAvgSqScale})
      for (const auto* tensor : opened.tensors(role)) tensor_bytes += static_cast<int64_t>(tensor->bytes.size());
    const int64_t foretold = train::checkpoint_bytes(straight.model) - (1 << 20);
    CHECK(std::abs(tensor_bytes - foretold) <= 8 * static_cast<int64_t>(scales));  // scales are rounded up

    Trained resumed = trained(formats, 1);
    train::restore(opened, resumed.model, resumed.optimizer);
    CHECK(resumed.state() == straight.state());
    CHECK(resumed.optimizer.updates() == 5);
    resumed.losses.clear();
    resumed.train(5, 4);
    straight.losses.clear();
    straight.train(5, 4);
    CHECK(resumed.losses == straight.losses);
    CHECK(resumed.state() == straight.state());

    // Its weights in a model of any format.
    for (const MasterFormat master : {MasterFormat::kF32, MasterFormat::kBF16Remainder}) {
      Trained other = trained({.master = master}, 0), original = trained(formats, 5);
      train::load_parameters(other.model, train::open_model(path));
      CHECK(other.weights() == original.weights());
    }
    // Moments of another format do not fit.
    Trained wrong =
        trained({formats.master, formats.moments == MomentFormat::kF32 ? MomentFormat::kBF16 : MomentFormat::kF32}, 0);
    CHECK_THROWS_AS(train::restore(opened, wrong.model, wrong.optimizer), CheckpointError);
  }
}

TEST_CASE("a checkpoint made before these keys existed goes on with their defaults, and with nothing else") {
  const ScratchFolder scratch("formats");
  Trained old = trained({}, 1);
  checkpoint::SaveRequest request = old.request();
  std::string& yaml = request.manifest.config_yaml;
  for (const std::string key : {"  master: ", "  moments: "}) {
    const size_t begin = yaml.find(key);
    REQUIRE(begin != std::string::npos);
    yaml.erase(begin, yaml.find('\n', begin) + 1 - begin);
  }
  checkpoint::CheckpointStore store(scratch.path(), {.report = [](const std::string&) {}});
  const checkpoint::OpenCheckpoint opened(store.save(request).path);
  train::RunConfig config = old.config();
  train::check_resumed_config(opened, config);
  config.optimizer.moments = MomentFormat::kBF16;
  CHECK_THROWS_WITH(train::check_resumed_config(opened, config),
                    ContainsSubstring("optimizer.moments: absent in the checkpoint, bf16 now"));
}

TEST_CASE("stochastic rounding follows the seed of the run") {
  for (const StateFormats& formats : all_state_formats()) {
    Trained first = trained(formats, 3, 1), again = trained(formats, 3, 1), other = trained(formats, 3, 2);
    CHECK(first.state() == again.state());
    const bool random = formats.master == MasterFormat::kBF16 || formats.moments != MomentFormat::kF32;
    CHECK((first.state() != other.state()) == random);
  }
}

}  // namespace esm::test
