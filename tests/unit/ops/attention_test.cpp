#include "ops/attention.h"

#include <cmath>

#include "ops/attention_dispatch.h"
#include "ops/dispatch.h"
#include "ops/parallel.h"
#include "support/compare.h"
#include "support/random_tensor.h"
#include "support/torch.h"

namespace esm::test {
namespace {

ops::Pack pack_of(const std::vector<int64_t>& lengths, int64_t dummy) {
  ops::Pack pack;
  std::vector<int32_t> cu_seqlens{0};
  std::vector<uint8_t> is_dummy;
  const auto add = [&](int64_t length, bool padding) {
    pack.tokens += length;
    cu_seqlens.push_back(static_cast<int32_t>(pack.tokens));
    is_dummy.push_back(padding ? 1 : 0);
    if (!padding) pack.max_seqlen = std::max(pack.max_seqlen, length);
  };
  for (const int64_t length : lengths) add(length, false);
  if (dummy > 0) add(dummy, true);
  pack.cu_seqlens = ints(cu_seqlens);
  pack.is_dummy = byte_values(is_dummy);
  return pack;
}

struct Reference {
  at::Tensor out, lse, dqkv;
};

/// Each head of each segment in FP64 through autograd.
Reference reference(const ops::Pack& pack, const at::Tensor& qkv, const at::Tensor& dout, int64_t heads) {
  const int64_t hidden = qkv.size(1) / 3, k = hidden / heads;
  at::Tensor x = qkv.to(at::kDouble);
  x.requires_grad_(true);
  Reference result{at::zeros({pack.tokens, hidden}, at::kDouble), at::zeros({heads, pack.tokens}, at::kDouble), {}};
  at::Tensor loss = at::zeros({}, at::kDouble);
  for (int64_t s = 0; s < pack.segments(); ++s) {
    const int32_t* cu_seqlens = ops::data<int32_t>(pack.cu_seqlens);
    if (ops::data<uint8_t>(pack.is_dummy)[s] != 0) continue;
    const int64_t first = cu_seqlens[s], n = cu_seqlens[s + 1] - first;
    for (int64_t h = 0; h < heads; ++h) {
      const auto part = [&](int64_t which) { return x.narrow(0, first, n).narrow(1, which * hidden + h * k, k); };
      const at::Tensor scores = part(0).matmul(part(1).t()).div(std::sqrt(static_cast<double>(k)));
      const at::Tensor out = scores.softmax(1).matmul(part(2));
      loss = loss.add(out.mul(dout.narrow(0, first, n).narrow(1, h * k, k).to(at::kDouble)).sum());
      result.out.narrow(0, first, n).narrow(1, h * k, k).copy_(out.detach());
      result.lse.select(0, h).narrow(0, first, n).copy_(scores.detach().logsumexp(1));
    }
  }
  loss.backward();
  result.dqkv = x.grad();
  return result;
}

}  // namespace

TEST_CASE("attention: outputs, log-sums and gradients of packed segments") {
  const auto type = GENERATE(at::kFloat, at::kBFloat16);
  const int64_t head_dim = GENERATE(4, 16, 24, 32, 64, 72), heads = 3;
  const std::vector<int64_t> lengths =
      GENERATE(std::vector<int64_t>{1}, std::vector<int64_t>{7, 1, 33, 2}, std::vector<int64_t>{128, 300, 16, 17, 15});
  CAPTURE(head_dim, lengths);
  const ops::Pack pack = pack_of(lengths, 9);
  ops::Workspace ws(Context{.threads = type == at::kFloat && head_dim == 24 ? 2 : 1});
  const int64_t hidden = heads * head_dim;
  const at::Tensor qkv = random_tensor(1, {pack.tokens, 3 * hidden}, type);
  const at::Tensor dout = random_tensor(2, {pack.tokens, hidden}, type);
  // Poisoned: every element must be written.
  const at::Tensor out = at::full({pack.tokens, hidden}, std::nan(""), type);
  const at::Tensor lse = at::full({heads, pack.tokens}, std::nan(""), at::kFloat);
  const at::Tensor dqkv = at::full({pack.tokens, 3 * hidden}, std::nan(""), type);
  ops::attention(ws, pack, {.qkv = qkv, .out = out, .lse = lse, .heads = heads});
  ops::attention_backward(ws, pack, {.qkv = qkv, .out = out, .lse = lse, .dout = dout, .dqkv = dqkv, .heads = heads});

  const Reference expected = reference(pack, qkv, dout, heads);
  const int64_t real = pack.tokens - 9;
  const Tolerance tolerance = operation_tolerance(type == at::kFloat ? DType::kF32 : DType::kBF16, 2 * pack.max_seqlen);
  check_close("out", values(out), values(expected.out), tolerance);
  check_close("lse", values(lse.narrow(1, 0, real)), values(expected.lse.narrow(1, 0, real)),
              operation_tolerance(DType::kF32, head_dim));
  // The gradient sees the rounding of `out` in rowsum(dO O): one more operation.
  check_close("dqkv", values(dqkv), values(expected.dqkv), {2 * tolerance.relative_l2, 2 * tolerance.of_max});
  CHECK(bytes(out.narrow(0, real, 9)) == bytes(at::zeros({9, hidden}, type)));
  CHECK(bytes(dqkv.narrow(0, real, 9)) == bytes(at::zeros({9, 3 * hidden}, type)));
}

TEST_CASE("attention of huge and equal scores stays finite") {
  const ops::Pack pack = pack_of({20, 5}, 0);
  ops::Workspace ws(Context{.threads = 1});
  const at::Tensor qkv = random_tensor(1, {25, 3 * 16}).mul(100);
  qkv.narrow(0, 20, 5).fill_(1.0);
  const at::Tensor out = at::empty({25, 16}, at::kFloat), lse = at::empty({1, 25}, at::kFloat),
                   dqkv = at::empty({25, 48}, at::kFloat);
  ops::attention(ws, pack, {.qkv = qkv, .out = out, .lse = lse, .heads = 1});
  const at::Tensor dout = random_tensor(2, {25, 16});
  ops::attention_backward(ws, pack, {.qkv = qkv, .out = out, .lse = lse, .dout = dout, .dqkv = dqkv, .heads = 1});
  const Reference expected = reference(pack, qkv, dout, 1);
  check_close("out", values(out), values(expected.out), {2e-4, 1e-3});  // scores of 1e4: their rounding is 1e-3
  for (const double value : values(dqkv)) CHECK(std::isfinite(value));
  check_close("equal scores", values(out.narrow(0, 20, 5)), std::vector<double>(5 * 16, 1.0), {1e-6, 1e-6});
}

TEST_CASE("both vector widths of the attention kernels agree") {
  if (__builtin_cpu_supports("avx512f") == 0) return;
  at::set_num_threads(2);
  const ops::Pack pack = pack_of({50, 1, 77}, 3);
  const int64_t heads = 2, head_dim = GENERATE(8, 24, 64), hidden = heads * head_dim;
  const at::Tensor qkv = random_tensor(1, {pack.tokens, 3 * hidden}), dout = random_tensor(2, {pack.tokens, hidden});
  ops::cpu::AttentionShape shape{.heads = heads,
                                 .head_dim = head_dim,
                                 .scale = 0.3f,
                                 .total_rows = pack.tokens,
                                 .segments = pack.segments(),
                                 .cu_seqlens = ops::data<int32_t>(pack.cu_seqlens),
                                 .skip = ops::data<uint8_t>(pack.is_dummy),
                                 .scratch_stride = ops::cpu::attention_scratch(77, head_dim)};
  const at::Tensor scratch = at::empty({ops::thread_count() * shape.scratch_stride}, at::kFloat);
  at::Tensor out[2], dqkv[2];
  for (int wide : {0, 1}) {
    out[wide] = at::empty({pack.tokens, hidden}, at::kFloat);
    dqkv[wide] = at::empty({pack.tokens, 3 * hidden}, at::kFloat);
    const at::Tensor lse = at::empty({heads, pack.tokens}, at::kFloat);
    const ops::cpu::Attention<float> a{shape, ops::data<float>(qkv), ops::data<float>(out[wide]), ops::data<float>(lse),
                                       ops::data<float>(scratch)};
    const ops::cpu::AttentionBackward<float> b{shape,
                                               ops::data<float>(qkv),
                                               ops::data<float>(out[wide]),
                                               ops::data<float>(dout),
                                               ops::data<float>(lse),
                                               ops::data<float>(dqkv[wide]),
                                               ops::data<float>(scratch)};
    if (wide == 1) {
      ops::cpu::attention_avx512(a);
      ops::cpu::attention_backward_avx512(b);
    } else {
      ops::cpu::attention_avx2(a);
      ops::cpu::attention_backward_avx2(b);
    }
  }
  check_close("out", values(out[0]), values(out[1]), operation_tolerance(DType::kF32, 77));
  check_close("dqkv", values(dqkv[0]), values(dqkv[1]), operation_tolerance(DType::kF32, 77));
}

}  // namespace esm::test
