#include "models/batch_pieces.h"

#include <algorithm>

namespace esm::models {
namespace {

/// Segments [first, last) of `batch`; `scored` and `real`: the scored rows and real segments before them, moved on.
data::Batch piece(const data::Batch& batch, size_t first, size_t last, size_t& scored, size_t& real) {
  const int32_t begin = batch.cu_seqlens[first], end = batch.cu_seqlens[last];
  data::Batch result;
  result.tokens.assign(batch.tokens.begin() + begin, batch.tokens.begin() + end);
  result.is_dummy.assign(batch.is_dummy.begin() + static_cast<int64_t>(first),
                         batch.is_dummy.begin() + static_cast<int64_t>(last));
  result.cu_seqlens.push_back(0);
  for (size_t s = first; s < last; ++s) {
    result.cu_seqlens.push_back(batch.cu_seqlens[s + 1] - begin);
    result.max_seqlen = std::max(result.max_seqlen, batch.cu_seqlens[s + 1] - batch.cu_seqlens[s]);
    if (batch.is_dummy[s] != 0 || real == batch.segments.size()) continue;
    result.segments.push_back(batch.segments[real++]);
    result.real_tokens += batch.cu_seqlens[s + 1] - batch.cu_seqlens[s];
  }
  for (; scored < batch.scored_rows.size() && batch.scored_rows[scored] < end; ++scored) {
    result.scored_rows.push_back(batch.scored_rows[scored] - begin);
    result.targets.push_back(batch.targets[scored]);
  }
  return result;
}

}  // namespace

std::vector<data::Batch> in_pieces(const data::Batch& batch, int64_t tokens) {
  std::vector<data::Batch> pieces;
  size_t scored = 0, real = 0;
  for (size_t first = 0, last = 0; first < batch.is_dummy.size(); first = last) {
    do {
      ++last;
    } while (last < batch.is_dummy.size() && batch.cu_seqlens[last + 1] - batch.cu_seqlens[first] <= tokens);
    pieces.push_back(piece(batch, first, last, scored, real));
  }
  return pieces;
}

}  // namespace esm::models
