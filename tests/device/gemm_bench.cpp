// TFLOP/s of the 12 products of an encoder layer (four linears, three roles), cuBLASLt's first proposal against the one
// chosen by timing, measured again after the choice. BF16, FP32 weight gradients accumulated, bias and residual as in
// the model, random data, L2 flushed before each run.
#include <fmt/core.h>

#include <chrono>
#include <cstdio>
#include <string>

#include "base/check.h"
#include "device/gemm.h"
#include "device/properties.h"
#include "device/stream.h"
#include "device/versions.h"
#include "tests/device/bench_timer.h"
#include "tests/device/device_array.h"

using namespace esm;
using namespace esm::test;
using device::GemmDesc;
using device::GemmPlanInfo;

namespace {

struct Product {
  std::string name;
  GemmDesc desc;
  bool separate_c = false;
};

std::vector<Product> products(int64_t tokens, int64_t hidden) {
  struct Linear {
    const char* name;
    int64_t out, in;
    bool residual;
  };
  std::vector<Product> result;
  for (const Linear& l : {Linear{"qkv", 3 * hidden, hidden, false}, Linear{"proj", hidden, hidden, true},
                          Linear{"fc1", 4 * hidden, hidden, false}, Linear{"fc2", hidden, 4 * hidden, true}}) {
    using device::LinearDgradGemm, device::LinearForwardGemm, device::LinearWgradGemm;
    const LinearForwardGemm forward{.tokens = tokens, .out = l.out, .in = l.in, .bias = true, .residual = l.residual};
    result.push_back({fmt::format("{} forward", l.name), forward.desc(), l.residual});
    result.push_back(
        {fmt::format("{} dgrad", l.name), LinearDgradGemm{.tokens = tokens, .out = l.out, .in = l.in}.desc()});
    result.push_back(
        {fmt::format("{} wgrad", l.name), LinearWgradGemm{.tokens = tokens, .out = l.out, .in = l.in}.desc()});
  }
  return result;
}

/// Buffers as large as the largest product needs, filled once.
struct Buffers {
  DeviceArray a, b, c, d, d_wide, bias;
  device::DeviceBuffer flush;
};

struct Totals {
  double flops = 0, first_us = 0, chosen_us = 0;
};

void bench_model(const char* model, int64_t hidden, int64_t tokens, device::GemmContext& first,
                 device::GemmContext& timed, const Buffers& buffers, cudaStream_t stream) {
  Totals total;
  for (const Product& p : products(tokens, hidden)) {
    const GemmPlanInfo info = timed.prepare(p.desc, stream);
    first.prepare(p.desc, stream);
    const bool bias = p.desc.epilogue == device::GemmEpilogue::kBias;
    const device::GemmArgs args{.a = buffers.a.get(),
                                .b = buffers.b.get(),
                                .c = p.separate_c ? buffers.c.get() : nullptr,
                                .d = p.desc.d == DType::kF32 ? buffers.d_wide.get() : buffers.d.get(),
                                .bias = bias ? buffers.bias.get() : nullptr};
    const std::vector<double> us = median_us(
        stream, 9, buffers.flush, {[&] { first.run(p.desc, args, stream); }, [&] { timed.run(p.desc, args, stream); }});
    const auto rate = [&](double microseconds) { return p.desc.flops() / microseconds * 1e-6; };
    fmt::print(
        "{:<5} {:>6} {:<13} {:>6}x{:>6}x{:>6} {:>9.1f} {:>7.0f} {:>9.1f} {:>7.0f} {:>+6.1f} %  {:>2} of {:<2} {:>8.1f} "
        "{:>8.1f}\n",
        model, tokens, p.name, p.desc.m, p.desc.n, p.desc.k, us[0], rate(us[0]), us[1], rate(us[1]),
        100 * (us[0] / us[1] - 1), info.chosen, info.candidates, info.first_us, info.chosen_us);
    total.flops += p.desc.flops();
    total.first_us += us[0];
    total.chosen_us += us[1];
  }
  fmt::print("{:<5} {:>6} {:<13} {:>20} {:>9.1f} {:>7.0f} {:>9.1f} {:>7.0f} {:>+6.1f} %\n\n", model, tokens, "all 12",
             "", total.first_us, total.flops / total.first_us * 1e-6, total.chosen_us,
             total.flops / total.chosen_us * 1e-6, 100 * (total.first_us / total.chosen_us - 1));
  std::fflush(stdout);
}

int run() {
  const device::Properties props = device::properties(0);
  const uint64_t seed = run_seed();
  fmt::print("{} {} SMs, L2 {} MiB, cuBLASLt {}, seed {}\n", props.name, props.sm_count, props.l2_bytes >> 20,
             cublasLtGetVersion(), seed);
  const device::Stream stream;
  constexpr int64_t kMaxTokens = 65536, kMaxHidden = 2560;
  Buffers buffers{.a = DeviceArray(DType::kBF16, kMaxTokens * 4 * kMaxHidden),
                  .b = DeviceArray(DType::kBF16, kMaxTokens * 4 * kMaxHidden),
                  .c = DeviceArray(DType::kBF16, kMaxTokens * 4 * kMaxHidden),
                  .d = DeviceArray(DType::kBF16, kMaxTokens * 4 * kMaxHidden),
                  .d_wide = DeviceArray(DType::kF32, 4 * kMaxHidden * kMaxHidden),
                  .bias = DeviceArray(DType::kBF16, 4 * kMaxHidden),
                  .flush = device::DeviceBuffer("cache flush", 2 * props.l2_bytes)};
  uint64_t which = seed;
  for (const DeviceArray* x : {&buffers.a, &buffers.b, &buffers.c, &buffers.d, &buffers.d_wide, &buffers.bias})
    x->fill_normal(++which, 1.0f, stream.get());
  device::GemmContext first({.tuning = device::GemmTuning::kFirstHeuristic});
  device::GemmContext timed({.workspace_bytes = device::gemm_workspace_for(4 * kMaxHidden * kMaxHidden)});
  fmt::print("first, chosen: us and TFLOP/s, measured again; then the choice and the medians that led to it (us)\n");
  fmt::print("{:<5} {:>6} {:<13} {:>20} {:>9} {:>7} {:>9} {:>7} {:>8}  {:>8} {:>8} {:>8}\n", "model", "tokens",
             "product", "m x n x k", "first us", "TFLOP/s", "chosen us", "TFLOP/s", "gain", "choice", "first",
             "chosen");
  const auto start = std::chrono::steady_clock::now();
  struct Model {
    const char* name;
    int64_t hidden;
  };
  for (const int64_t tokens : {int64_t{32768}, kMaxTokens})
    for (const Model& m : {Model{"8M", 320}, Model{"150M", 640}, Model{"650M", 1280}, Model{"3B", kMaxHidden}})
      bench_model(m.name, m.hidden, tokens, first, timed, buffers, stream.get());
  fmt::print("all in {:.1f} s\n", std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  return 0;
}

}  // namespace

int main() {
  if (device::cuda_device_count() == 0) {
    fmt::print("skipped: no CUDA device\n");
    return 77;
  }
  try {
    return run();
  } catch (const std::exception& error) {
    fmt::print("bench_gemm: {}\n", error.what());
    return 1;
  }
}
