// Arithmetic of training, as papers count it.
#pragma once
#include "models/esm2_config.h"
#include "train/run_config.h"

namespace esm::train {

/// Floating-point operations of forward and backward for a token: 6 per parameter of the products (the whole head
/// counted) and 12 layers hidden seqlen of attention, where seqlen = sum(l^2) / sum(l) over the lengths l of a batch.
/// What recompute adds is not counted.
inline double flops_per_token(const models::Esm2Config& model, double seqlen) {
  const double d = static_cast<double>(model.hidden), f = static_cast<double>(model.ffn_size()),
               layers = static_cast<double>(model.layers), v = static_cast<double>(models::kVocabSize);
  return 6 * layers * (4 * d * d + 2 * d * f) + 6 * (d * d + v * d) + 12 * layers * d * seqlen;
}

/// Those of the forward pass to embeddings: 2 per parameter of the encoder's products, 4 layers hidden seqlen.
inline double embedding_flops_per_token(const models::Esm2Config& model, double seqlen) {
  const double d = static_cast<double>(model.hidden), f = static_cast<double>(model.ffn_size()),
               layers = static_cast<double>(model.layers);
  return layers * (2 * (4 * d * d + 2 * d * f) + 4 * d * seqlen);
}

/// What train.recompute adds to it.
inline double recompute_flops_per_token(const models::Esm2Config& model, const TrainSection& train, double seqlen) {
  const double d = static_cast<double>(model.hidden), f = static_cast<double>(model.ffn_size());
  // The last of the layers need not: what it kept is still there.
  const double layers = static_cast<double>((train.recompute_layers > 0 ? train.recompute_layers : model.layers) - 1);
  switch (train.recompute) {
    case nn::Recompute::kNone: return 0;
    case nn::Recompute::kSelective: return 2 * layers * d * f;
    case nn::Recompute::kFull: return layers * (2 * (4 * d * d + d * f) + 4 * d * seqlen);
  }
  return 0;
}

}  // namespace esm::train
