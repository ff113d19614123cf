#include "models/batch_stage.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "base/check.h"
#include "base/narrow.h"
#include "ops/attention_choice.h"
#include "ops/embedding.h"
#include "ops/place.h"
#include "ops/upload.h"

namespace esm::models {
namespace {

constexpr int64_t kAlignment = 256, kLeastCapacity = 16;

/// Segments of a batch as the device sees them.
struct Segments {
  std::vector<int32_t> cu_seqlens{0};
  std::vector<uint8_t> is_dummy;

  void add(int32_t end, bool dummy, int64_t max_seqlen) {
    while (dummy && end - cu_seqlens.back() > max_seqlen)
      push(cu_seqlens.back() + static_cast<int32_t>(max_seqlen), true);
    push(end, dummy);
  }
  void push(int32_t end, bool dummy) {
    cu_seqlens.push_back(end);
    is_dummy.push_back(dummy ? 1 : 0);
  }
};

void check_batch(const data::Batch& batch, const BatchStage::Limits& limits) {
  const int64_t tokens = batch.budget();
  ESM_CHECK(tokens > 0 && tokens <= limits.tokens, "a batch of {} tokens for a model of {}", tokens, limits.tokens);
  ESM_CHECK(batch.cu_seqlens.size() == batch.is_dummy.size() + 1 && batch.cu_seqlens.front() == 0 &&
                batch.cu_seqlens.back() == tokens,
            "cu_seqlens must run from 0 to {}", tokens);
  for (size_t s = 0; s < batch.is_dummy.size(); ++s) {
    const int32_t length = batch.cu_seqlens[s + 1] - batch.cu_seqlens[s];
    ESM_CHECK(length > 0, "segment {} is empty", s);
    ESM_CHECK(batch.is_dummy[s] != 0 || length <= limits.max_seqlen, "a segment of {} tokens for a model of {}", length,
              limits.max_seqlen);
  }
  for (const uint8_t token : batch.tokens) ESM_CHECK(token < limits.vocabulary, "token id {}", token);
  for (const int32_t row : batch.scored_rows) ESM_CHECK(row >= 0 && row < tokens, "scored row {}", row);
  for (const uint8_t target : batch.targets) ESM_CHECK(target < limits.vocabulary, "target {}", target);
  ESM_CHECK(batch.targets.size() == batch.scored_rows.size(), "one target a scored row");
}

/// What is staged, in one block of memory.
struct Sizes {
  int64_t tokens = 0, segments = 0, scored = 0, chunks = 0;
};

struct Layout {
  explicit Layout(const Sizes& sizes) {
    ids = take(sizes.tokens);
    cu_seqlens = take(4 * (sizes.segments + 1));
    is_dummy = take(sizes.segments);
    rows = take(4 * sizes.scored);
    targets = take(sizes.scored);
    counts = take(4 * sizes.chunks);
    counted = take(4);
  }
  int64_t take(int64_t size) {
    const int64_t at = bytes;
    bytes = round_up(bytes + std::max<int64_t>(size, 1), kAlignment);
    return at;
  }
  int64_t ids, cu_seqlens, is_dummy, rows, targets, counts, counted;
  int64_t bytes = 0;
};

template <class T>
void put(std::byte* block, int64_t at, const std::vector<T>& values, int64_t size, T rest) {
  T* to = reinterpret_cast<T*>(block + at);
  std::copy(values.begin(), values.end(), to);
  std::fill(to + values.size(), to + size, rest);
}

/// Of a CUDA device.
int64_t capacity_for(int64_t segments) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max(segments, kLeastCapacity))));
}

}  // namespace

int64_t expected_segments(const Context& context, int64_t tokens, int64_t max_seqlen) {
  constexpr int64_t kSample = 1 << 17;  // tokens, enough to know how many proteins more of them are
  const int64_t sample = std::min(tokens, kSample);
  const auto share = static_cast<double>(tokens) / static_cast<double>(sample);
  const auto proteins =
      static_cast<int64_t>(share * static_cast<double>(ops::protein_lengths(sample, max_seqlen, 0).size()));
  return context.on_cuda() ? capacity_for(proteins) : std::max(proteins, kLeastCapacity);
}

struct BatchStage::Impl {
  Context context;
  Limits limits;
  ops::Upload upload;
  at::Tensor block;  // uint8, where the model works
  at::Tensor positions;

  Impl(const Context& context_, const Limits& limits_) : context(context_), limits(limits_), upload(context_) {
    upload.reserve(Layout(expected()).bytes);
    positions = at::empty({limits.tokens}, ops::options(context, at::kInt));
  }

  Sizes expected() const {
    return sizes_of({.tokens = limits.tokens,
                     .segments = expected_segments(context, limits.tokens, limits.max_seqlen),
                     .scored = limits.chunk_rows});
  }

  /// Of a batch of so many tokens, segments, scored rows.
  Sizes sizes_of(Sizes sizes) const {
    const int64_t chunk = limits.chunk_rows;
    sizes.chunks = (sizes.scored + chunk - 1) / chunk;
    if (context.on_cuda()) {
      sizes.tokens = limits.tokens;
      sizes.segments = capacity_for(sizes.segments);
      sizes.scored = sizes.chunks * chunk;
    }
    return sizes;
  }

  at::Tensor view(int64_t at, int64_t count, at::ScalarType type) const {
    const int64_t size = static_cast<int64_t>(c10::elementSize(type));
    return block.narrow(0, at, count * size).view(type);
  }
};

std::vector<int64_t> StagedBatch::shape() const {
  std::vector<int64_t> shape{pack.tokens, pack.segments(), pack.max_seqlen, scored.rows.numel()};
  for (const at::Tensor& x : {pack.ids, pack.cu_seqlens, pack.is_dummy, pack.positions, pack.counted, scored.rows,
                              scored.targets, scored.counts})
    shape.push_back(reinterpret_cast<int64_t>(x.data_ptr()));
  return shape;
}

BatchStage::BatchStage(const Context& context, const Limits& limits) : impl_(std::make_unique<Impl>(context, limits)) {}

BatchStage::~BatchStage() = default;

StagedBatch BatchStage::stage(const data::Batch& batch) {
  Impl& m = *impl_;
  check_batch(batch, m.limits);
  const bool fixed = m.context.on_cuda();
  Segments segments;
  for (size_t s = 0; s < batch.is_dummy.size(); ++s)
    segments.add(batch.cu_seqlens[s + 1], batch.is_dummy[s] != 0, fixed ? m.limits.max_seqlen : batch.budget());
  if (fixed && batch.budget() < m.limits.tokens)
    segments.add(narrow<int32_t>(m.limits.tokens), true, m.limits.max_seqlen);
  const Sizes sizes =
      m.sizes_of({.tokens = batch.budget(), .segments = std::ssize(segments.is_dummy), .scored = batch.n_scored()});
  const Layout at(sizes);

  std::byte* memory = m.upload.begin(at.bytes);
  put<uint8_t>(memory, at.ids, batch.tokens, sizes.tokens, ops::kPadToken);
  put<int32_t>(memory, at.cu_seqlens, segments.cu_seqlens, sizes.segments + 1, narrow<int32_t>(sizes.tokens));
  put<uint8_t>(memory, at.is_dummy, segments.is_dummy, sizes.segments, 1);
  put<int32_t>(memory, at.rows, batch.scored_rows, sizes.scored, 0);
  put<uint8_t>(memory, at.targets, batch.targets, sizes.scored, 0);
  std::vector<int32_t> counts;
  for (int64_t begin = 0; begin < batch.n_scored(); begin += m.limits.chunk_rows)
    counts.push_back(narrow<int32_t>(std::min(m.limits.chunk_rows, batch.n_scored() - begin)));
  put<int32_t>(memory, at.counts, counts, sizes.chunks, 0);
  int32_t counted = 0;
  for (size_t s = 0; s < batch.is_dummy.size(); ++s)
    if (batch.is_dummy[s] == 0) counted = batch.cu_seqlens[s + 1];
  put<int32_t>(memory, at.counted, {counted}, 1, 0);
  m.block = m.upload.finish();

  StagedBatch staged;
  staged.pack = {.tokens = sizes.tokens,
                 .ids = m.view(at.ids, sizes.tokens, at::kByte),
                 .cu_seqlens = m.view(at.cu_seqlens, sizes.segments + 1, at::kInt),
                 .is_dummy = m.view(at.is_dummy, sizes.segments, at::kByte),
                 .positions = m.positions.narrow(0, 0, sizes.tokens),
                 .counted = m.view(at.counted, 1, at::kInt)};
  for (size_t s = 0; s < batch.is_dummy.size(); ++s)
    if (batch.is_dummy[s] == 0)
      staged.pack.max_seqlen = std::max<int64_t>(staged.pack.max_seqlen, batch.cu_seqlens[s + 1] - batch.cu_seqlens[s]);
  if (fixed) staged.pack.max_seqlen = m.limits.max_seqlen;
  staged.scored = {.rows = m.view(at.rows, sizes.scored, at::kInt),
                   .targets = m.view(at.targets, sizes.scored, at::kByte),
                   .counts = m.view(at.counts, sizes.chunks, at::kInt)};
  ops::pack_positions(m.context, staged.pack);
  return staged;
}

ops::MemoryPart BatchStage::memory() const {
  ops::MemoryPart part{.name = "batches", .bytes = impl_->upload.bytes()};
  return part.add(impl_->positions);
}

}  // namespace esm::models
