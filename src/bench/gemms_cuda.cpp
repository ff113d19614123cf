#include "bench/gemms.h"

#include <algorithm>
#include <map>

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
  std::map<DType, DeviceBuffer> a, b;
  DeviceBuffer c, d, bias, scales;
};

Operands make_operands(const std::vector<NamedGemm>& gemms, cudaStream_t stream) {
  std::map<DType, int64_t> a, b;
  int64_t c = 0, d_bytes = 0, bias = 0, scales = 0;
  for (const NamedGemm& gemm : gemms) {
    const GemmDesc& g = gemm.desc;
    a[g.a] = std::max(a[g.a], g.lda * (g.transpose_a ? g.m : g.k));
    b[g.b] = std::max(b[g.b], g.ldb * (g.transpose_b ? g.k : g.n));
    d_bytes = std::max(d_bytes, size_of(g.d) * g.ldd * g.n);
    if (gemm.separate_c) c = std::max(c, g.ldd * g.n);
    if (g.epilogue == device::GemmEpilogue::kBias) bias = std::max(bias, g.m);
    scales = std::max({scales, device::scale_count(g.scale_a, g.m, g.k), device::scale_count(g.scale_b, g.n, g.k)});
  }
  const auto up = [](int64_t n) { return (n + 7) / 8 * 8; };
  const DType type = gemms.front().desc.d;  // a forward product: that of bias and residual
  const RandomValues values;
  Operands operands{.c = values.make("the residual of the products", type, up(c), stream),
                    .d = values.make("the results of the products", DType::kF32, up(d_bytes / 4), stream),
                    .bias = values.make("the bias of the products", type, up(bias), stream)};
  const auto fill = [&](std::map<DType, DeviceBuffer>& to, const std::map<DType, int64_t>& sizes, uint32_t which) {
    constexpr char kPurpose[] = "the operands of the products";
    for (const auto& [dtype, n] : sizes)
      to.emplace(dtype, device::is_fp8(dtype) ? make_fp8_values(kPurpose, dtype, n, which, stream)
                                              : values.make(kPurpose, dtype, up(n), stream));
  };
  fill(operands.a, a, 1);
  fill(operands.b, b, 2);
  const float one = 1;
  operands.scales = make_repeated("the scales of the products", &one, sizeof one, scales * int64_t{sizeof one}, stream);
  ESM_CUDA(cudaStreamSynchronize(stream));
  return operands;
}

}  // namespace

std::vector<GemmTime> time_gemms(const std::vector<NamedGemm>& gemms) {
  const device::Stream stream;
  const Operands operands = make_operands(gemms, stream.get());
  int index = 0;
  ESM_CUDA(cudaGetDevice(&index));
  const DeviceBuffer flush("a cache flush", 2 * device::properties(index).l2_bytes);
  device::GemmContext first({.tuning = device::GemmTuning::kFirstHeuristic}), timed({});
  std::vector<GemmTime> times;
  for (const NamedGemm& gemm : gemms) {
    const GemmDesc& g = gemm.desc;
    std::string lacking = device::fp8_obstacle(g);
    if (lacking.empty() && !first.supported(g)) lacking = "cuBLASLt has no kernel for it on this device";
    if (!lacking.empty()) {
      times.push_back({.gemm = gemm, .lacking = std::move(lacking)});
      continue;
    }
    const device::GemmPlanInfo info = timed.prepare(g, stream.get());
    first.prepare(g, stream.get());
    const device::GemmArgs args{.a = operands.a.at(g.a).get(),
                                .b = operands.b.at(g.b).get(),
                                .c = gemm.separate_c ? operands.c.get() : nullptr,
                                .d = operands.d.get(),
                                .bias = g.epilogue == device::GemmEpilogue::kBias ? operands.bias.get() : nullptr,
                                .scale_a = g.in_codes() ? operands.scales.as<float>() : nullptr,
                                .scale_b = g.in_codes() ? operands.scales.as<float>() : nullptr};
    const std::vector<double> us =
        median_us(stream.get(), kRounds, flush,
                  {[&] { first.run(g, args, stream.get()); }, [&] { timed.run(g, args, stream.get()); }});
    times.push_back({.gemm = gemm,
                     .lacking = {},
                     .first_us = us[0],
                     .chosen_us = us[1],
                     .candidates = info.candidates,
                     .chosen = info.chosen});
  }
  return times;
}

}  // namespace esm::bench
