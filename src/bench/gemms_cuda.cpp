#include "bench/gemms.h"

#include <algorithm>

#include "bench/median_us_cuda.h"
#include "bench/random_values_cuda.h"
#include "device/gemm.h"
#include "device/properties.h"

namespace esm::bench {
namespace {

constexpr int kRounds = 9;

using device::DeviceBuffer, device::GemmDesc;

/// Buffers as large as the largest product needs, filled once.
struct Operands {
  DeviceBuffer a, b, c, d, bias;
};

Operands make_operands(const std::vector<NamedGemm>& gemms, cudaStream_t stream) {
  int64_t a = 0, b = 0, c = 0, d_bytes = 0, bias = 0;
  for (const NamedGemm& gemm : gemms) {
    const GemmDesc& g = gemm.desc;
    a = std::max(a, g.lda * (g.transpose_a ? g.m : g.k));
    b = std::max(b, g.ldb * (g.transpose_b ? g.k : g.n));
    d_bytes = std::max(d_bytes, size_of(g.d) * g.ldd * g.n);
    if (gemm.separate_c) c = std::max(c, g.ldd * g.n);
    if (g.epilogue == device::GemmEpilogue::kBias) bias = std::max(bias, g.m);
  }
  const auto up = [](int64_t n) { return (n + 7) / 8 * 8; };
  const DType type = gemms.front().desc.a;
  const RandomValues values;
  Operands operands{.a = values.make("the operands of the products", type, up(a), stream),
                    .b = values.make("the operands of the products", type, up(b), stream),
                    .c = values.make("the residual of the products", type, up(c), stream),
                    .d = values.make("the results of the products", DType::kF32, up(d_bytes / 4), stream),
                    .bias = values.make("the bias of the products", type, up(bias), stream)};
  ESM_CUDA(cudaStreamSynchronize(stream));
  return operands;
}

}  // namespace

std::vector<GemmTime> time_gemms(const ModelShape& shape) {
  check(shape);
  const std::vector<NamedGemm> gemms = model_gemms(shape);
  const device::Stream stream;
  const Operands operands = make_operands(gemms, stream.get());
  int index = 0;
  ESM_CUDA(cudaGetDevice(&index));
  const DeviceBuffer flush("a cache flush", 2 * device::properties(index).l2_bytes);
  device::GemmContext first({.tuning = device::GemmTuning::kFirstHeuristic}), timed({});
  std::vector<GemmTime> times;
  for (const NamedGemm& gemm : gemms) {
    const GemmDesc& g = gemm.desc;
    const device::GemmPlanInfo info = timed.prepare(g, stream.get());
    first.prepare(g, stream.get());
    const device::GemmArgs args{.a = operands.a.get(),
                                .b = operands.b.get(),
                                .c = gemm.separate_c ? operands.c.get() : nullptr,
                                .d = operands.d.get(),
                                .bias = g.epilogue == device::GemmEpilogue::kBias ? operands.bias.get() : nullptr};
    const std::vector<double> us =
        median_us(stream.get(), kRounds, flush,
                  {[&] { first.run(g, args, stream.get()); }, [&] { timed.run(g, args, stream.get()); }});
    times.push_back(
        {.gemm = gemm, .first_us = us[0], .chosen_us = us[1], .candidates = info.candidates, .chosen = info.chosen});
  }
  return times;
}

}  // namespace esm::bench
