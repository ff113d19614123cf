#include "ops/attention_choice.h"

#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <c10/core/InferenceMode.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "base/narrow.h"
#include "device/properties.h"
#include "device/stream.h"
#include "ops/graph_pool_cuda.h"

namespace esm::ops {
namespace {

constexpr int kWarmUps = 2, kRounds = 7;

/// One layer's tensors, random; all candidates work on them in turn.
struct Operands {
  Operands(const AttentionSizes& sizes, at::TensorOptions type) {
    const at::TensorOptions float32 = type.dtype(at::kFloat), int32 = type.dtype(at::kInt);
    qkv = at::empty({sizes.tokens, 3, sizes.heads, sizes.head_dim}, type);
    dqkv = at::empty(qkv.sizes(), type);
    out = at::empty({sizes.tokens, sizes.heads, sizes.head_dim}, type);
    dout = at::empty(out.sizes(), type);
    lse = at::empty({sizes.heads * sizes.tokens}, float32);
    const at::Generator generator = at::cuda::detail::createCUDAGenerator(qkv.device().index());  // not the global one
    qkv.normal_(0, 1, generator);
    dout.normal_(0, 1, generator);
    std::vector<int32_t> cumulated(static_cast<size_t>(sizes.capacity + 1), narrow<int32_t>(sizes.tokens));
    cumulated[0] = 0;
    size_t at = 0;
    for (const int64_t length : lengths_for(sizes)) {
      cumulated[at + 1] = cumulated[at] + narrow<int32_t>(length);
      ++at;
    }
    cu_seqlens = at::empty({sizes.capacity + 1}, int32);
    cu_seqlens.copy_(at::from_blob(cumulated.data(), cu_seqlens.sizes(), at::kInt));
  }

  /// Proteins, or where the pack has room for fewer sequences, equal ones.
  static std::vector<int64_t> lengths_for(const AttentionSizes& sizes) {
    std::vector<int64_t> lengths = protein_lengths(sizes.tokens, sizes.max_seqlen, 0);
    if (narrow<int64_t>(lengths.size()) <= sizes.capacity) return lengths;
    const int64_t each = (sizes.tokens + sizes.capacity - 1) / sizes.capacity;
    ESM_CHECK(each <= sizes.max_seqlen, "{} tokens do not fit into {} sequences of {}", sizes.tokens, sizes.capacity,
              sizes.max_seqlen);
    lengths.assign(static_cast<size_t>(sizes.tokens / each), each);
    if (sizes.tokens % each != 0) lengths.push_back(sizes.tokens % each);
    return lengths;
  }

  at::Tensor qkv, dqkv, out, dout, lse, cu_seqlens;
};

/// A backend and its captured layer.
class Candidate {
 public:
  Candidate(AttentionKind kind, const AttentionSizes& sizes, const Operands& x, device::StreamHandle stream)
      : backend_(make_attention_backend(kind, sizes)) {
    workspace_ = at::empty({backend_->workspace_bytes()}, x.qkv.options().dtype(at::kByte));
    const auto layer = [&] {
      backend_->set_batch(x.cu_seqlens, stream);
      backend_->forward({.qkv = x.qkv, .out = x.out, .lse = x.lse, .workspace = workspace_, .stream = stream});
      backend_->backward({.qkv = x.qkv,
                          .out = x.out,
                          .dout = x.dout,
                          .lse = x.lse,
                          .dqkv = x.dqkv,
                          .workspace = workspace_,
                          .stream = stream});
    };
    layer();  // kernels load
    const GraphPool::Scope scope(pool_, stream);
    graph_.emplace(device::Graph::capture(stream, layer));
  }

  void queue(device::StreamHandle stream) {
    begin_.record(stream);
    graph_->launch(stream);
    end_.record(stream);
  }
  double microseconds() const {
    end_.synchronize();
    return 1e3 * device::Event::milliseconds_between(begin_, end_);
  }

 private:
  GraphPool pool_;  // lives longer than the graph
  std::unique_ptr<AttentionBackend> backend_;
  at::Tensor workspace_;
  std::optional<device::Graph> graph_;
  device::Event begin_{device::Event::Timing::kOn}, end_{device::Event::Timing::kOn};
};

/// Runs `attempt`; what went wrong, on one line.
template <class Attempt>
std::string reason_of_failure(Attempt&& attempt) {
  std::string reason;
  try {
    attempt();
    return {};
  } catch (const c10::Error& error) {
    reason = error.what_without_backtrace();
  } catch (const std::exception& error) {
    reason = error.what();
  }
  return "failed: " + reason.substr(0, reason.find('\n'));
}

void time_candidates(const AttentionSizes& sizes, const at::TensorOptions& type, std::vector<AttentionTiming>& timings,
                     device::StreamHandle stream) {
  const Operands operands(sizes, type);
  std::vector<std::unique_ptr<Candidate>> candidates(timings.size());
  for (size_t i = 0; i < timings.size(); ++i)
    if (timings[i].refusal.empty())
      timings[i].refusal = reason_of_failure(
          [&] { candidates[i] = std::make_unique<Candidate>(timings[i].kind, sizes, operands, stream); });
  std::vector<std::vector<double>> us(timings.size());
  for (int round = -kWarmUps; round < kRounds; ++round) {
    for (const auto& candidate : candidates)
      if (candidate) candidate->queue(stream);
    for (size_t i = 0; i < candidates.size(); ++i)
      if (candidates[i] && round >= 0) us[i].push_back(candidates[i]->microseconds());
  }
  for (size_t i = 0; i < timings.size(); ++i) {
    if (!candidates[i]) continue;
    std::nth_element(us[i].begin(), us[i].begin() + kRounds / 2, us[i].end());
    timings[i].microseconds = us[i][kRounds / 2];
  }
}

}  // namespace

AttentionChoice choose_attention(const AttentionSizes& sizes, at::ScalarType type, device::StreamHandle stream) {
  ESM_CHECK(stream != nullptr, "attention is timed in a graph, which the default stream cannot capture");
  if (type != at::kBFloat16) return {.kind = AttentionKind::kSimple};
  const c10::DeviceIndex device = c10::cuda::current_device();
  const int capability = device::properties(device).compute_capability;
  if (sizes.deterministic)
    return {.kind = deterministic_attention({.head_dim = sizes.head_dim, .capability = capability})};
  AttentionChoice choice;
  for (const AttentionKind kind : {AttentionKind::kCudnn, AttentionKind::kFlash2})
    choice.timings.push_back(
        {.kind = kind, .refusal = attention_refusal(kind, {.head_dim = sizes.head_dim, .capability = capability})});
  const auto refused = [](const AttentionTiming& t) { return !t.refusal.empty(); };
  if (std::all_of(choice.timings.begin(), choice.timings.end(), refused)) {
    choice.kind = AttentionKind::kSimple;
    return choice;
  }
  const std::string failure = reason_of_failure([&] {
    const c10::InferenceMode no_autograd;
    const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromExternal(stream, device));
    time_candidates(sizes, at::TensorOptions().device(at::kCUDA, device).dtype(type), choice.timings, stream);
  });
  c10::cuda::CUDACachingAllocator::emptyCache();
  const int best = fastest(choice.timings);
  if (!failure.empty() || best < 0)
    fail<DeviceError>("no attention backend can be timed for {} tokens, {} heads of {}: {}", sizes.tokens, sizes.heads,
                      sizes.head_dim, failure.empty() ? choice.text() : failure);
  choice.kind = choice.timings[static_cast<size_t>(best)].kind;
  return choice;
}

}  // namespace esm::ops
