#include <algorithm>

#include "base/log.h"
#include "device/phase_clock.h"
#include "ops/attention_choice.h"
#include "ops/attention_memory.h"
#include "ops/cuda_halves.h"
#include "ops/cuda_tensor.h"

namespace esm::ops::cuda {
namespace {

/// The kind asked for; that of the other packs of this model; the fastest.
AttentionKind choose(Workspace& ws, const AttentionSetup& setup, const AttentionSizes& sizes) {
  if (setup.kind.has_value()) return *setup.kind;
  for (const auto& [capacity, backend] : ws.attention_backends)
    for (const AttentionKind kind : {AttentionKind::kCudnn, AttentionKind::kFlash2, AttentionKind::kSimple})
      if (backend && backend->name() == attention_kind_name(kind)) return kind;
  const AttentionChoice choice = choose_attention(sizes, setup.dtype, ws.context().stream());
  log::info("{}", choice.text());
  return choice.kind;
}

struct Views {
  Views(const Pack& pack, int64_t heads) : tokens(pack.tokens), heads_(heads) {}
  at::Tensor three(const at::Tensor& x) const { return x.view({tokens, 3, heads_, x.size(1) / (3 * heads_)}); }
  at::Tensor one(const at::Tensor& x) const { return x.view({tokens, heads_, x.size(1) / heads_}); }

  int64_t tokens, heads_;
};

at::Tensor workspace_of(Workspace& ws) {
  const int64_t bytes = ws.attention->workspace_bytes();
  return bytes == 0 ? at::Tensor() : ws.floats(Workspace::kAttention, (bytes + 3) / 4);
}

}  // namespace

void begin_attention(Workspace& ws, const Pack& pack, const AttentionSetup& setup) {
  auto& backend = ws.attention_backends[pack.segments()];
  if (!backend) {
    const AttentionSizes sizes{.tokens = pack.tokens,
                               .heads = setup.heads,
                               .head_dim = setup.head_dim,
                               .capacity = pack.segments(),
                               .max_seqlen = pack.max_seqlen,
                               .deterministic = setup.deterministic};
    const AttentionKind chosen = choose(ws, setup, sizes);
    const int64_t usual = ws.usual_sequences > 0 ? ws.usual_sequences : sizes.capacity;
    const AttentionKind kind = attention_within_memory(chosen, sizes, usual);
    if (kind != chosen)
      log::info("attention: {} for packs of {} to {} sequences, too many for the memory of {}",
                attention_kind_name(kind), sizes.capacity / 2 + 1, sizes.capacity, attention_kind_name(chosen));
    backend = make_attention_backend(kind, sizes);
    ws.attention_library_bytes = std::max(ws.attention_library_bytes, attention_memory(kind, sizes).library_bytes);
    log::debug("attention by {}: up to {} sequences in {} tokens, none longer than {}", backend->name(), sizes.capacity,
               sizes.tokens, sizes.max_seqlen);
  }
  ws.attention = backend.get();
  backend->set_batch(pack.cu_seqlens, ws.context().stream());
}

void attention(Workspace& ws, const Pack& pack, const AttentionForward& a) {
  const device::Phase phase(ws.context(), "attention forward");
  ESM_CHECK(ws.attention != nullptr, "attention before begin_attention()");
  const Views views(pack, a.heads);
  ws.attention->forward({.qkv = views.three(a.qkv),
                         .out = views.one(a.out),
                         .lse = a.lse,
                         .workspace = workspace_of(ws),
                         .stream = ws.context().stream()});
}

void attention_backward(Workspace& ws, const Pack& pack, const AttentionBackward& a) {
  const device::Phase phase(ws.context(), "attention backward");
  ESM_CHECK(ws.attention != nullptr, "attention before begin_attention()");
  const Views views(pack, a.heads);
  ws.attention->backward({.qkv = views.three(a.qkv),
                          .out = views.one(a.out),
                          .dout = views.one(a.dout),
                          .lse = a.lse,
                          .dqkv = views.three(a.dqkv),
                          .workspace = workspace_of(ws),
                          .stream = ws.context().stream()});
}

}  // namespace esm::ops::cuda
