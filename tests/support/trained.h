// Small models whose optimizer state is kept in a given format, some training steps from the start.
#pragma once
#include <string>
#include <vector>

#include "checkpoint/store.h"
#include "support/batches.h"
#include "support/models.h"
#include "support/steps.h"
#include "support/torch.h"
#include "train/checkpointing.h"

namespace esm::test {

inline std::vector<precision::StateFormats> all_state_formats() {
  using precision::MasterFormat;
  using precision::MomentFormat;
  std::vector<precision::StateFormats> all;
  for (const MasterFormat master : {MasterFormat::kF32, MasterFormat::kBF16Remainder, MasterFormat::kBF16})
    for (const MomentFormat moments : {MomentFormat::kF32, MomentFormat::kBF16, MomentFormat::kE4M3})
      all.push_back({master, moments});
  return all;
}

inline constexpr nn::Role kStateRoles[] = {nn::Role::kCompute,      nn::Role::kMaster,   nn::Role::kRemainder,
                                           nn::Role::kExpAvg,       nn::Role::kExpAvgSq, nn::Role::kExpAvgScale,
                                           nn::Role::kExpAvgSqScale};

/// BF16, two layers.
struct Trained {
  struct Options {
    precision::StateFormats formats;
    int64_t steps = 0;
    uint64_t seed = 9;  // of stochastic rounding
    int64_t head_dim = 8;
    std::optional<ops::AttentionKind> attention;
    bool graphs = false;
  };

  Context context;
  models::Esm2 model;
  train::Optimizer optimizer;
  std::vector<double> losses;

  Trained(const Context& context_, const Options& options)
      : context(context_),
        model(context, small_config(2, 2, options.head_dim),
              {.precision = precision::Precision::kBf16,
               .tokens_per_batch = 128,
               .formats = options.formats,
               .attention = options.attention,
               .graphs = options.graphs}),
        optimizer(context, model.units(), {}, {.seed = options.seed, .graphs = options.graphs}) {
    model.init_parameters(3);
    train(0, options.steps);
  }

  /// Each step has a batch of its own, given by its number.
  void train(int64_t first, int64_t steps) {
    for (int64_t i = first; i < first + steps; ++i) {
      const data::Batch batch = make_batch({random_row(static_cast<uint64_t>(i), 60), random_row(100, 33)});
      losses.push_back(one_step(context, model, optimizer, batch, 3e-3).sums.loss_sum);
    }
  }

  /// Every buffer of weights and moments.
  std::vector<std::vector<uint8_t>> state() {
    std::vector<std::vector<uint8_t>> all;
    for (const nn::UnitStorage* unit : model.units())
      for (const nn::Role role : kStateRoles)
        if (unit->has(role)) all.push_back(bytes(unit->flat(role)));
    return all;
  }
  std::vector<std::vector<double>> weights() {
    std::vector<std::vector<double>> all;
    for (const nn::UnitStorage* unit : model.units())
      for (size_t i = 0; i < unit->entries().size(); ++i) all.push_back(values(unit->weights(i)));
    return all;
  }

  train::RunConfig config() const {
    train::RunConfig result;
    result.model = model.config();
    result.optimizer.master = model.options().formats.master;
    result.optimizer.moments = model.options().formats.moments;
    return result;
  }
  checkpoint::SaveRequest request(train::HostCopy* copy = nullptr) {
    train::TrainState state;
    state.step = state.updates = optimizer.updates();
    const data::LoaderState position{.packer = {}, .samples = {}, .fingerprint = std::string(32, '0')};
    const train::RunConfig settings = config();
    const train::Carried carried;
    return train::save_request({model, optimizer, state, position, settings, carried}, copy);
  }
  /// Path of the checkpoint.
  std::string save(const std::string& folder) {
    checkpoint::CheckpointStore store(folder, {.report = [](const std::string&) {}});
    return store.save(request()).path;
  }
};

}  // namespace esm::test
