// What training keeps of each layer for backward.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>

namespace esm::nn {

/// What backward computes again, to the same bits. Kept elements a token and layer (D hidden, F = 4 D, row statistics
/// left out), and what is computed again:
///   kNone       10 D: input, q k v, attention output, middle, feed-forward before the GELU. Nothing.
///   kSelective   6 D: without the feed-forward. Its first product: 8 D^2 FLOP of the 72 D^2 of a layer's products.
///   kFull          D: the input alone. All but the second product: 16 D^2 FLOP and the attention.
/// Attention's output is the dear one to compute again: 2 S FLOP (S tokens a sequence) for each byte, at half the rate
/// of a product, where the outputs of the products cost D each.
enum class Recompute { kNone, kSelective, kFull };
constexpr auto enum_names(Recompute) { return std::array{"none", "selective", "full"}; }

/// Buffers of what layers keep: the first `sharing` layers have one between them, every other layer its own.
struct LayerBuffers {
  int64_t layers = 0;
  int64_t sharing = 0;  // 0 to layers

  int64_t count() const { return layers - std::max<int64_t>(sharing - 1, 0); }
  int64_t of(int64_t layer) const { return layer - std::min(layer, std::max<int64_t>(sharing - 1, 0)); }
  /// Whether backward finds the layer's own there: of those that share a buffer the last one used it last.
  bool lasts(int64_t layer) const { return layer + 1 >= sharing; }
};

}  // namespace esm::nn
