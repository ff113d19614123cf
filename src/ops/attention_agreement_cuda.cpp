#include <c10/core/InferenceMode.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "base/check.h"
#include "base/half.h"
#include "base/narrow.h"
#include "device/properties.h"
#include "device/stream.h"
#include "ops/attention_agreement.h"
#include "ops/attention_cuda.h"
#include "ops/attention_fp64.h"

namespace esm::ops {
namespace {

/// Values on the device, of the given type.
at::Tensor upload(const std::vector<float>& host, at::IntArrayRef shape, const at::TensorOptions& type) {
  const at::Tensor x = at::empty(shape, type);
  x.copy_(at::from_blob(const_cast<float*>(host.data()), shape, at::kFloat));
  return x;
}

std::vector<float> download(const at::Tensor& x) {
  std::vector<float> host(static_cast<size_t>(x.numel()));
  at::from_blob(host.data(), x.sizes(), at::kFloat).copy_(x);  // waits
  return host;
}

void run(AttentionKind kind, const AttentionProblem& p, const AttentionSolution& want, at::ScalarType type, int index,
         device::StreamHandle stream, AttentionAgreement& agreement) {
  const AttentionSizes sizes{
      .tokens = p.tokens(), .heads = p.heads, .head_dim = p.head_dim, .capacity = 64, .max_seqlen = 256};
  ESM_CHECK(p.max_seqlen <= sizes.max_seqlen, "a sequence of {}", p.max_seqlen);
  const auto backend = make_attention_backend(kind, sizes);
  const at::TensorOptions on_device = at::TensorOptions().device(at::kCUDA, narrow<c10::DeviceIndex>(index));
  const at::TensorOptions own = on_device.dtype(type);
  const at::Tensor qkv = upload(p.qkv, {p.tokens(), 3, p.heads, p.head_dim}, own),
                   dout = upload(p.dout, {p.tokens(), p.heads, p.head_dim}, own), out = at::empty(dout.sizes(), own),
                   dqkv = at::empty(qkv.sizes(), own),
                   lse = at::empty({p.heads * p.tokens()}, on_device.dtype(at::kFloat)),
                   workspace = at::empty({backend->workspace_bytes()}, on_device.dtype(at::kByte)),
                   cu_seqlens = at::empty({sizes.capacity + 1}, on_device.dtype(at::kInt));
  std::vector<int32_t> borders = p.cu_seqlens;
  borders.resize(static_cast<size_t>(sizes.capacity + 1), borders.back());
  cu_seqlens.copy_(at::from_blob(borders.data(), cu_seqlens.sizes(), at::kInt));
  backend->set_batch(cu_seqlens, stream);
  backend->forward({.qkv = qkv, .out = out, .lse = lse, .workspace = workspace, .stream = stream});
  backend->backward(
      {.qkv = qkv, .out = out, .dout = dout, .lse = lse, .dqkv = dqkv, .workspace = workspace, .stream = stream});
  compare(p, want, download(out), download(dqkv), type == at::kBFloat16, agreement);
}

}  // namespace

std::vector<AttentionAgreement> check_cuda_attention(int index, uint64_t seed) {
  device::use_device(index);
  const int capability = device::properties(index).compute_capability;
  const device::Stream stream;
  const c10::InferenceMode no_autograd;
  const c10::cuda::CUDAStreamGuard guard(
      c10::cuda::getStreamFromExternal(stream.get(), narrow<c10::DeviceIndex>(index)));
  struct Variant {
    AttentionKind kind;
    at::ScalarType type;
  };
  std::vector<AttentionAgreement> results;
  for (const int64_t head_dim : {16, 24, 32, 64, 128}) {
    const AttentionProblem problem(2, head_dim, seed);
    const AttentionSolution want = solve(problem);
    for (const Variant& v : {Variant{AttentionKind::kSimple, at::kFloat},
                             {AttentionKind::kSimple, at::kBFloat16},
                             {AttentionKind::kFlash2, at::kBFloat16},
                             {AttentionKind::kCudnn, at::kBFloat16}}) {
      AttentionAgreement agreement{
          .name = fmt::format("{} {}, heads of {}", attention_kind_name(v.kind), v.type == at::kFloat ? "fp32" : "bf16",
                              head_dim),
          .refusal = attention_refusal(v.kind, {.head_dim = head_dim, .capability = capability})};
      if (agreement.refusal.empty()) {
        try {
          run(v.kind, problem, want, v.type, index, stream.get(), agreement);
        } catch (const std::exception& error) {
          const std::string text = error.what();
          agreement.failure = text.substr(0, text.find('\n'));
        }
      }
      results.push_back(std::move(agreement));
    }
  }
  c10::cuda::CUDACachingAllocator::emptyCache();
  return results;
}

}  // namespace esm::ops
