// Attention backends on packed proteins and on full rows: forward, backward, both in a CUDA graph. FLOPs: 4 sum(s^2) H
// K forward, 2.5 times that backward.
#include <c10/core/InferenceMode.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <fmt/core.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "base/units.h"
#include "device/properties.h"
#include "device/stream.h"
#include "device/versions.h"
#include "ops/cudnn_sdpa.h"
#include "ops/graph_pool_cuda.h"
#include "tests/device/attention_setup.h"
#include "tests/device/bench_timer.h"

using namespace esm;
using namespace esm::test;
using ops::AttentionKind;
using ops::AttentionSizes;

namespace {

struct Lengths {
  const char* name;
  std::vector<int64_t> lengths;
};

struct Variant {
  AttentionKind kind;
  bool deterministic = false, dq_apart = false;
};

void bench_variant(const Variant& variant, AttentionSizes sizes, const std::vector<Lengths>& packs, uint64_t seed,
                   cudaStream_t stream) {
  sizes.deterministic = variant.deterministic;
  sizes.dq_apart = variant.dq_apart;
  const std::string name = fmt::format("{}{}{}", ops::attention_kind_name(variant.kind),
                                       variant.deterministic ? " det" : "", variant.dq_apart ? " dq apart" : "");
  const auto start = std::chrono::steady_clock::now();
  const auto backend = ops::make_attention_backend(variant.kind, sizes);
  const double build_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  AttentionBuffers buffers(sizes, DType::kBF16, backend->workspace_bytes());
  buffers.forward.stream = buffers.backward.stream = stream;
  buffers.qkv.fill_normal(seed, 1.0f, stream);
  buffers.dout.fill_normal(seed + 1, 1.0f, stream);
  const device::DeviceBuffer no_flush;  // the operands are several times the L2 cache
  const auto forward = [&] { backend->forward(buffers.forward); };
  const auto backward = [&] { backend->backward(buffers.backward); };
  for (const Lengths& pack : packs) {
    double squares = 0;
    for (const int64_t length : pack.lengths) squares += static_cast<double>(length) * static_cast<double>(length);
    buffers.set_sequences(cumulated(pack.lengths), stream);
    backend->set_batch(buffers.cu_seqlens, stream);
    const std::vector<double> us = median_us(stream, 9, no_flush, {forward, backward});
    ops::GraphPool pool;
    const auto capture = [&] {
      const ops::GraphPool::Scope scope(pool, stream);
      return device::Graph::capture(stream, [&] {
        backend->set_batch(buffers.cu_seqlens, stream);
        forward();
        backward();
      });
    };
    const device::Graph graph = capture();
    const double graph_us = median_us(stream, 9, no_flush, {[&] { graph.launch(stream); }})[0];
    const double flops = 4 * squares * static_cast<double>(sizes.heads * sizes.head_dim);
    fmt::print(
        "{:>6} {:<8} {:>4} {:>3}x{:<4} {:<15} {:>9.1f} {:>6.0f} {:>9.1f} {:>6.0f} {:>9.1f} {:>4} {:>10} {:>6.1f}\n",
        sizes.tokens, pack.name, pack.lengths.size(), sizes.heads, sizes.head_dim, name, us[0], flops / us[0] * 1e-6,
        us[1], 2.5 * flops / us[1] * 1e-6, graph_us, graph.nodes(), human_bytes(backend->workspace_bytes()), build_s);
    std::fflush(stdout);
  }
}

/// `only_tokens`: one token budget, or 0 for all.
int run(int64_t only_tokens) {
  const uint64_t seed = run_seed();
  const device::Properties props = device::properties(0);
  fmt::print("{}, cuDNN {}, seed {}\n", props.name, ops::cudnn_version(), seed);
  fmt::print("{:>6} {:<8} {:>4} {:>8} {:<15} {:>9} {:>6} {:>9} {:>6} {:>9} {:>4} {:>10} {:>6}\n", "T", "lengths",
             "seqs", "heads", "backend", "fwd us", "TF/s", "bwd us", "TF/s", "graph us", "ops", "workspace", "build s");
  const c10::InferenceMode no_autograd;
  const device::Stream stream;
  bool failed = false;
  for (const int64_t tokens : {int64_t{32768}, int64_t{65536}}) {
    if (only_tokens != 0 && tokens != only_tokens) continue;
    const std::vector<Lengths> packs = {{"protein", protein_lengths(tokens, seed)},
                                        {"S=1024", std::vector<int64_t>(static_cast<size_t>(tokens / 1024), 1024)}};
    struct Heads {
      int64_t heads, head_dim;
    };
    for (const Heads& h : {Heads{20, 16}, Heads{20, 24}, Heads{20, 32}, Heads{20, 64}, Heads{40, 64}, Heads{40, 128}}) {
      const auto capacity = static_cast<int64_t>((packs[0].lengths.size() + 63) / 64 * 64);
      const AttentionSizes sizes{
          .tokens = tokens, .heads = h.heads, .head_dim = h.head_dim, .capacity = capacity, .max_seqlen = 1024};
      std::vector<Variant> variants = {{AttentionKind::kFlash2}, {AttentionKind::kCudnn}};
      if (h.head_dim >= 64) variants.push_back({AttentionKind::kCudnn, false, true});
      if (tokens == 32768 && h.heads == 20 && h.head_dim == 64) {
        variants.push_back({AttentionKind::kFlash2, true});
        variants.push_back({AttentionKind::kCudnn, true});
      }
      for (const Variant& variant : variants) {
        try {
          bench_variant(variant, sizes, packs, seed, stream.get());
        } catch (const std::exception& error) {
          failed = true;
          fmt::print("{:>6} {} x {} {}: {}\n", tokens, h.heads, h.head_dim, ops::attention_kind_name(variant.kind),
                     error.what());
        }
        c10::cuda::CUDACachingAllocator::emptyCache();
      }
    }
  }
  return failed ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (device::cuda_device_count() == 0) {
    fmt::print("skipped: no CUDA device\n");
    return 77;
  }
  try {
    return run(argc > 1 ? std::atoll(argv[1]) : 0);
  } catch (const std::exception& error) {
    fmt::print("bench_attention: {}\n", error.what());
    return 1;
  }
}
