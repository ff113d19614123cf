#include "train/plan.h"

#include "base/error.h"
#include "base/units.h"
#include "device/versions.h"
#include "ops/attention_choice.h"
#include "train/flops.h"
#include "train/model_io.h"
#include "train/setup.h"

namespace esm::train {
namespace {

double effective_seqlen(const RunConfig& config) {
  constexpr int64_t kSample = 1 << 17;  // tokens
  double squares = 0, sum = 0;
  for (const int64_t length : ops::protein_lengths(kSample, config.data.max_tokens, 0)) {
    squares += static_cast<double>(length) * static_cast<double>(length);
    sum += static_cast<double>(length);
  }
  return squares / sum;
}

}  // namespace

Plan make_plan(RunConfig config, std::optional<int64_t> card_bytes, const config::Origins& origins) {
  if (!config.init_from.empty()) adopt_model_config(config, open_model(config.init_from), origins);
  Plan plan{.place = planned_place(config)};
  if (card_bytes.has_value()) {
    plan.place.name = fmt::format("a card of {}", human_bytes(*card_bytes));
    plan.place.memory_bytes = *card_bytes;
  }
  plan.memory = plan_memory(config, plan.place);
  const bool assumed = plan.place.cuda && device::cuda_device_count() == 0;
  if (assumed && !card_bytes.has_value()) {
    for (const PlanPlace& card : usual_cards()) {
      CardFits& row = plan.cards.emplace_back(CardFits{.place = card});
      try {
        row.tokens = what_fits(config, card);
      } catch (const DeviceError&) {  // not with this card: none
      }
    }
  } else {
    plan.cards.push_back({.place = plan.place, .tokens = what_fits(config, plan.place)});
  }
  plan.effective_seqlen = effective_seqlen(config);
  plan.flops_per_token = flops_per_token(config.model, plan.effective_seqlen);
  plan.recompute_flops = recompute_flops_per_token(config.model, config.train, plan.effective_seqlen);
  plan.disk_bytes = plan.memory.checkpoint_bytes * (config.checkpoint.keep_last + 1);
  return plan;
}

}  // namespace esm::train
