// A batch in pieces of whole segments, so that what a CPU works on stays in its caches.
#pragma once
#include <cstdint>
#include <vector>

#include "data/batch.h"

namespace esm::models {

/// Consecutive segments of `batch`, as many a piece as fit into `tokens` slots, at least one. The pieces are batches of
/// their own (of any number of slots) and make up `batch` in order.
std::vector<data::Batch> in_pieces(const data::Batch& batch, int64_t tokens);

}  // namespace esm::models
