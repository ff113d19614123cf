// What training keeps of each layer for backward.
#pragma once
#include <array>

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

}  // namespace esm::nn
