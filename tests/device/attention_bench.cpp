// Attention backends on packed proteins and on full rows: forward, backward, both in a CUDA graph. FLOPs: 4 sum(s^2) H
// K forward, 2.5 times that backward.
#include <c10/core/InferenceMode.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <fmt/core.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "base/units.h"
#include "bench/median_us_cuda.h"
#include "device/properties.h"
#include "device/stream.h"
#include "device/versions.h"
#include "ops/attention_choice.h"
#include "ops/graph_pool_cuda.h"
#include "ops/version.h"
#include "tests/device/attention_setup.h"
#include "tests/device/isolated.h"

using namespace esm;
using namespace esm::test;
using ops::AttentionKind;
using ops::AttentionSizes;

namespace {

struct Lengths {
  const char* name;
  std::vector<int64_t> lengths;
};

struct Heads {
  int64_t heads, head_dim;
};

void bench_backend(AttentionKind kind, const AttentionSizes& sizes, const std::vector<Lengths>& packs, uint64_t seed,
                   cudaStream_t stream) {
  const std::string name = fmt::format("{}{}", ops::attention_kind_name(kind), sizes.deterministic ? " det" : "");
  const auto start = std::chrono::steady_clock::now();
  const auto backend = ops::make_attention_backend(kind, sizes);
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
    const std::vector<double> us = bench::median_us(stream, 9, no_flush, {forward, backward});
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
    const double graph_us = bench::median_us(stream, 9, no_flush, {[&] { graph.launch(stream); }})[0];
    const double flops = 4 * squares * static_cast<double>(sizes.heads * sizes.head_dim);
    fmt::print(
        "{:>6} {:<8} {:>4} {:>3}x{:<4} {:<10} {:>9.1f} {:>6.0f} {:>9.1f} {:>6.0f} {:>9.1f} {:>4} {:>10} {:>6.1f}\n",
        sizes.tokens, pack.name, pack.lengths.size(), sizes.heads, sizes.head_dim, name, us[0], flops / us[0] * 1e-6,
        us[1], 2.5 * flops / us[1] * 1e-6, graph_us, graph.nodes(), human_bytes(backend->workspace_bytes()), build_s);
    std::fflush(stdout);
  }
}

void bench_choice(const AttentionSizes& sizes, cudaStream_t stream) {
  const auto start = std::chrono::steady_clock::now();
  const ops::AttentionChoice choice = ops::choose_attention(sizes, at::kBFloat16, stream);
  fmt::print("{:>6} {:>3}x{:<4} {}; chosen in {:.2f} s\n", sizes.tokens, sizes.heads, sizes.head_dim, choice.text(),
             std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  std::fflush(stdout);
}

/// `only_tokens`: one token budget, or 0 for all.
std::vector<Part> make_parts(int64_t only_tokens, uint64_t seed) {
  std::vector<Part> parts;
  for (const int64_t tokens : {int64_t{32768}, int64_t{65536}}) {
    if (only_tokens != 0 && tokens != only_tokens) continue;
    const std::vector<Lengths> packs = {{"protein", ops::protein_lengths(tokens, 1024, seed)},
                                        {"S=1024", std::vector<int64_t>(static_cast<size_t>(tokens / 1024), 1024)}};
    for (const Heads& h : {Heads{20, 16}, Heads{20, 24}, Heads{20, 32}, Heads{20, 64}, Heads{40, 64}, Heads{40, 128}}) {
      AttentionSizes sizes{.tokens = tokens,
                           .heads = h.heads,
                           .head_dim = h.head_dim,
                           .capacity = static_cast<int64_t>((packs[0].lengths.size() + 63) / 64 * 64),
                           .max_seqlen = 1024};
      const auto add = [&](AttentionKind kind) {
        parts.push_back({fmt::format("{} {}x{} {}{}", tokens, h.heads, h.head_dim, ops::attention_kind_name(kind),
                                     sizes.deterministic ? " det" : ""),
                         [=](Report&, cudaStream_t stream) {
                           bench_backend(kind, sizes, packs, seed, stream);
                           c10::cuda::CUDACachingAllocator::emptyCache();
                         }});
      };
      for (const bool deterministic : {false, true}) {
        if (deterministic && !(tokens == 32768 && h.heads == 20 && h.head_dim == 64)) continue;
        sizes.deterministic = deterministic;
        add(AttentionKind::kFlash2);
        add(AttentionKind::kCudnn);
      }
      sizes.deterministic = false;
      parts.push_back({fmt::format("{} {}x{} choice", tokens, h.heads, h.head_dim),
                       [=](Report&, cudaStream_t stream) { bench_choice(sizes, stream); }});
    }
  }
  return parts;
}

}  // namespace

int main(int argc, char** argv) {
  if (device::cuda_device_count() == 0) {
    fmt::print("skipped: no CUDA device\n");
    return 77;
  }
  const uint64_t seed = run_seed();
  if (!in_child()) {
    fmt::print("{}, cuDNN {}, seed {}\n", device::properties(0).name, ops::cudnn_version(), seed);
    fmt::print("{:>6} {:<8} {:>4} {:>8} {:<10} {:>9} {:>6} {:>9} {:>6} {:>9} {:>4} {:>10} {:>6}\n", "T", "lengths",
               "seqs", "heads", "backend", "fwd us", "TF/s", "bwd us", "TF/s", "graph us", "ops", "workspace",
               "build s");
  }
  try {
    const c10::InferenceMode no_autograd;
    return run_isolated("bench_attention", argv, make_parts(argc > 1 ? std::atoll(argv[1]) : 0, seed), seed);
  } catch (const std::exception& error) {
    fmt::print("bench_attention: {}\n", error.what());
    return 1;
  }
}
