#include "kernels/rotary.h"

#include <algorithm>

#include "device/cuda_check.h"
#include "device/phase_clock.h"
#include "kernels/rotary_fp8.h"
#include "ops/cuda_halves.h"
#include "ops/cuda_operand.h"

namespace esm::ops::cuda {

void pack_positions(const Context& context, const Pack& pack) {
  ESM_CUDA(kernels::launch(kernels::PackGeometryArgs{.tokens = pack.tokens,
                                                     .segments = pack.segments(),
                                                     .cu_seqlens = pointer<int32_t>(pack.cu_seqlens),
                                                     .positions = pointer<int32_t>(pack.positions)},
                           context.stream()));
}

namespace {

void fused_backward(Workspace& ws, const Pack& pack, const RotaryTable& table, const RotaryArgs& a, int64_t head_dim) {
  write_fp8(ws.context(), a.gradient, [&](const kernels::Fp8Out& out) {
    kernels::RotaryFp8BackwardArgs args{.tokens = pack.tokens,
                                        .heads = a.heads,
                                        .head_dim = head_dim,
                                        .dqkv = raw(a.qkv),
                                        .positions = pointer<int32_t>(pack.positions),
                                        .cos = pointer<float>(table.cos),
                                        .sin = pointer<float>(table.sin),
                                        .row_count = pointer<int32_t>(a.gradient.counted),
                                        .to = out};
    if (a.sums.defined() && (out.rows != nullptr || out.transposed != nullptr)) {
      args.sums = pointer<float>(a.sums);
      args.workspace =
          ws.scratch(Workspace::kPartials, kernels::rotary_fp8_backward_workspace(pack.tokens, a.heads, head_dim));
    }
    ESM_CUDA(kernels::launch(args, ws.context().stream()));
  });
}

}  // namespace

void rotary(Workspace& ws, const Pack& pack, const RotaryTable& table, const RotaryArgs& a) {
  const device::Phase phase(ws.context(), a.inverse ? "rotary backward" : "rotary forward");
  const int64_t head_dim = a.qkv.size(1) / (3 * a.heads);
  if (a.gradient.fused() && kernels::rotary_fp8_supports(head_dim)) return fused_backward(ws, pack, table, a, head_dim);
  void* workspace = a.sums.defined() ? ws.scratch(Workspace::kPartials,
                                                  kernels::rotary_sums_workspace(pack.tokens, a.heads, head_dim))
                                     : nullptr;
  ESM_CUDA(kernels::launch(kernels::RotaryArgs{.dtype = dtype_of(a.qkv),
                                               .tokens = pack.tokens,
                                               .heads = a.heads,
                                               .head_dim = head_dim,
                                               .qkv = raw(a.qkv),
                                               .positions = pointer<int32_t>(pack.positions),
                                               .cos = pointer<float>(table.cos),
                                               .sin = pointer<float>(table.sin),
                                               .inverse = a.inverse,
                                               .sums = pointer<float>(a.sums),
                                               .workspace = workspace},
                           ws.context().stream()));
  ops::quantize_operand(ws, a.gradient);
}

int64_t rotary_sums_floats(int64_t tokens, int64_t heads, int64_t head_dim) {
  return std::max(floats_of(kernels::rotary_sums_workspace(tokens, heads, head_dim)),
                  floats_of(kernels::rotary_fp8_backward_workspace(tokens, heads, head_dim)));
}

}  // namespace esm::ops::cuda
