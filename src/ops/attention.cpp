#include "ops/attention.h"

#include <cmath>

#include "device/phase_clock.h"
#include "ops/attention_memory.h"
#include "ops/cuda_halves.h"
#include "ops/dispatch.h"
#include "ops/parallel.h"

namespace esm::ops {
namespace {

cpu::AttentionShape shape_of(const Pack& pack, const at::Tensor& out, const at::Tensor& lse, int64_t heads) {
  const int64_t head_dim = out.size(1) / heads;
  ESM_CHECK(out.size(0) == pack.tokens && lse.size(0) == heads && lse.size(1) == pack.tokens, "attention shapes");
  return {.heads = heads,
          .head_dim = head_dim,
          .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim))),
          .total_rows = pack.tokens,
          .segments = pack.segments(),
          .cu_seqlens = data<int32_t>(pack.cu_seqlens),
          .skip = data<uint8_t>(pack.is_dummy),
          .scratch_stride = cpu::attention_scratch(pack.max_seqlen, head_dim)};
}

float* scratch_of(Workspace& ws, const cpu::AttentionShape& shape) {
  return data<float>(ws.floats(Workspace::kAttention, shape.scratch_stride * thread_count()));
}

}  // namespace

void begin_attention(Workspace& ws, const Pack& pack, const AttentionSetup& setup) {
  if (on_cuda(ws.context(), "begin_attention", {pack.cu_seqlens})) cuda::begin_attention(ws, pack, setup);
}

void expect_attention(Workspace& ws, const AttentionSizes& sizes, const AttentionSetup& setup) {
  if (!ws.context().on_cuda())
    return ws.expect(Workspace::kAttention,
                     cpu::attention_scratch(sizes.max_seqlen, setup.head_dim) * ws.context().threads);
  ws.usual_sequences = sizes.capacity;
  if (!ws.context().sketch) return;
  ESM_CHECK(setup.kind.has_value(), "a sketch must be told which attention");
  const AttentionMemory memory = attention_memory(*setup.kind, sizes);
  ws.expect(Workspace::kAttention, (memory.workspace_bytes + 3) / 4);
  ws.attention_library_bytes = memory.library_bytes;
}

void attention(Workspace& ws, const Pack& pack, const AttentionForward& a) {
  if (on_cuda(ws.context(), "attention", {a.qkv, a.out, a.lse})) return cuda::attention(ws, pack, a);
  const device::Phase phase(ws.context(), "attention forward");
  const cpu::AttentionShape shape = shape_of(pack, a.out, a.lse, a.heads);
  with_element(a.qkv, [&](auto element) {
    using T = decltype(element);
    cpu::attention<T>({.shape = shape,
                       .qkv = data<T>(a.qkv),
                       .out = data<T>(a.out),
                       .lse = data<float>(a.lse),
                       .scratch = scratch_of(ws, shape)});
  });
}

void attention_backward(Workspace& ws, const Pack& pack, const AttentionBackward& a) {
  if (on_cuda(ws.context(), "attention_backward", {a.qkv, a.out, a.lse, a.dout, a.dqkv}))
    return cuda::attention_backward(ws, pack, a);
  const device::Phase phase(ws.context(), "attention backward");
  const cpu::AttentionShape shape = shape_of(pack, a.out, a.lse, a.heads);
  with_element(a.qkv, [&](auto element) {
    using T = decltype(element);
    cpu::attention_backward<T>({.shape = shape,
                                .qkv = data<T>(a.qkv),
                                .out = data<T>(a.out),
                                .dout = data<T>(a.dout),
                                .lse = data<float>(a.lse),
                                .dqkv = data<T>(a.dqkv),
                                .scratch = scratch_of(ws, shape)});
  });
}

}  // namespace esm::ops
