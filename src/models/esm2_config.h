// Shape and options of an ESM-2 model.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include "base/narrow.h"
#include "config/field.h"

namespace esm::models {

/// kGeluErf: x/2 (1 + erf(x / sqrt 2)), what ESM-2 was trained with; kGeluTanh: the tanh form of NVIDIA's recipe.
enum class Activation { kGeluErf, kGeluTanh };
constexpr auto enum_names(Activation) { return std::array{"gelu_erf", "gelu_tanh"}; }

/// Rotary inverse frequencies. kFp32: computed; kFp16Rounded: computed, rounded to FP16 (the released ESM-2 weights
/// carry such values, facebookresearch/esm#259); kFile: those of the imported checkpoint, which must carry them.
enum class InvFreq { kFp32, kFp16Rounded, kFile };
constexpr auto enum_names(InvFreq) { return std::array{"fp32", "fp16_rounded", "file"}; }

inline constexpr int64_t kVocabSize = 33;

/// The largest sizes that a config, a config.json or a checkpoint may name: far above any model and far below an
/// overflow of products. Each layer costs its names and shapes as soon as a file is opened, hence fewer of them.
inline constexpr int64_t kMaxLayers = 10'000, kMaxHidden = 1'000'000, kMaxFfn = 10'000'000;

/// Rows that the head works on at once, of a micro-batch of `tokens`. 15 % are scored as a rule; more go through the
/// head in several chunks.
constexpr int64_t head_chunk_rows(int64_t tokens) { return std::min(tokens, round_up<int64_t>(tokens / 5, 128)); }

struct Esm2Config {
  ESM_CONFIG(Esm2Config)
  int64_t layers = 6;
  ESM_FIELD(layers, "Encoder layers.", config::between(1, kMaxLayers), config::Resume::kFixed)
  int64_t hidden = 320;
  ESM_FIELD(hidden, "Hidden size; a multiple of 2 * heads.", config::between(2, kMaxHidden), config::Resume::kFixed)
  int64_t heads = 20;
  ESM_FIELD(heads, "Attention heads.", config::between(1, kMaxHidden), config::Resume::kFixed)
  int64_t ffn = 0;
  ESM_FIELD(ffn, "Feed-forward size; 0: 4 * hidden.", config::between(0, kMaxFfn), config::Resume::kFixed)
  Activation activation = Activation::kGeluErf;
  ESM_FIELD(activation, "Activation of the feed-forward blocks; the head's is always the exact GELU.",
            config::Resume::kFixed)
  bool token_dropout = true;
  ESM_FIELD(token_dropout, "Zero the embeddings of <mask> and rescale each sequence by 0.88 / (1 - masked share).",
            config::Resume::kFixed)
  InvFreq inv_freq = InvFreq::kFp32;
  ESM_FIELD(inv_freq, "Rotary inverse frequencies.", config::Resume::kFixed)
  double layer_norm_eps = 1e-5;
  ESM_FIELD(layer_norm_eps, "Epsilon of every LayerNorm.", config::positive(), config::Resume::kFixed)
  double init_std = 0.02;
  ESM_FIELD(init_std, "Standard deviation of the initial weights (biases 0, LayerNorm 1 and 0).", config::positive(),
            config::Resume::kFixed)

  int64_t ffn_size() const { return ffn > 0 ? ffn : 4 * hidden; }
  int64_t head_dim() const { return hidden / heads; }

  void cross_check(config::Problems& problems) const {
    if (hidden % (2 * heads) != 0)
      problems.add("hidden", "hidden {} must be a multiple of 2 * heads = {} (rotary pairs within a head)", hidden,
                   2 * heads);
  }
};

}  // namespace esm::models
