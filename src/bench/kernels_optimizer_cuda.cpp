// Kernels of the optimizer step over flat buffers: AdamW in every format of its state, norm, casts.
#include <algorithm>

#include "bench/kernel_bench_cuda.h"

#include "base/narrow.h"
#include "base/units.h"
#include "kernels/adamw.h"
#include "kernels/cast.h"
#include "kernels/clip.h"
#include "kernels/copy.h"
#include "kernels/reduce.h"
#include "kernels/weights.h"

namespace esm::bench {
namespace {

/// Flat buffers of some encoder layers, worked on in turn so that nothing stays in the L2 cache.
struct FlatBuffers {
  explicit FlatBuffers(const KernelBench& x)
      : n(x.shape.layer_parameters()), layers(std::clamp((int64_t{1} << 30) / (4 * n), int64_t{1}, int64_t{8})) {
    const int64_t total = n * layers;
    const auto make = [&](DType dtype) { return x.values.make("a flat buffer", dtype, total, x.stream.get()); };
    master = make(DType::kF32);
    grad = make(DType::kF32);
    compute = make(DType::kBF16);
    remainder = make(DType::kBF16);
    m = x.zeros(4 * total);
    v = x.zeros(4 * total);
    m_scale = x.zeros(4 * ((total + 127) / 128));
    v_scale = x.zeros(4 * ((total + 127) / 128));
  }
  int64_t n, layers;
  device::DeviceBuffer master, grad, compute, remainder, m, v, m_scale, v_scale;
};

void adamw(KernelBench& x, const FlatBuffers& flat) {
  using kernels::MasterFormat, kernels::MomentFormat;
  struct Mode {
    const char* name;
    MasterFormat master;
    MomentFormat moment;
    bool groups;
    double bytes;  // an element
  };
  std::vector<uint8_t> host;
  for (int64_t i = 0; i < flat.n / 64; ++i) host.push_back(i % 300 < 3 ? 1 : 0);
  const device::DeviceBuffer groups = x.upload(host);
  const device::DeviceBuffer dynamic = x.upload(std::vector<kernels::AdamwDynamic>{
      {.updates = 10, .lr = 1e-6, .step_lr = 1e-6, .inv_sqrt_bias2 = 1, .grad_scale = 1e-3f, .skip = 0}});
  for (const Mode& mode :
       {Mode{"fp32 master, fp32 moments", MasterFormat::kF32, MomentFormat::kF32, false, 30},
        {"fp32 master, fp32 moments, groups", MasterFormat::kF32, MomentFormat::kF32, true, 30},
        {"bf16+16 master, fp32 moments", MasterFormat::kBF16Remainder, MomentFormat::kF32, true, 28},
        {"bf16+16 master, bf16 moments", MasterFormat::kBF16Remainder, MomentFormat::kBF16, true, 20},
        {"bf16 master, bf16 moments", MasterFormat::kBF16, MomentFormat::kBF16, true, 16},
        {"fp32 master, e4m3 moments", MasterFormat::kF32, MomentFormat::kE4M3, true, 18.125},
        {"bf16+16 master, e4m3 moments", MasterFormat::kBF16Remainder, MomentFormat::kE4M3, true, 16.125}}) {
    for (const device::DeviceBuffer* moment : {&flat.m, &flat.v})  // zeros mean zero in every format
      ESM_CUDA(cudaMemsetAsync(moment->get(), 0, static_cast<size_t>(moment->bytes()), x.stream.get()));
    int64_t turn = 0;
    x.add(fmt::format("adamw {}, layer of {}", mode.name, human_count(static_cast<double>(flat.n))),
          mode.bytes * static_cast<double>(flat.n), [&](cudaStream_t stream) {
            const int64_t at = flat.n * (turn++ % flat.layers);
            return launch(kernels::AdamwArgs{.formats = {mode.master, mode.moment},
                                             .master = flat.master.as<float>() + at,
                                             .compute = flat.compute.as<uint16_t>() + at,
                                             .remainder = flat.remainder.as<uint16_t>() + at,
                                             .exp_avg = flat.m.as<float>() + at,
                                             .exp_avg_sq = flat.v.as<float>() + at,
                                             .exp_avg_scale = flat.m_scale.as<float>(),
                                             .exp_avg_sq_scale = flat.v_scale.as<float>(),
                                             .grad = flat.grad.as<float>() + at,
                                             .n = flat.n,
                                             .groups = mode.groups ? groups.as<uint8_t>() : nullptr,
                                             .dynamic = dynamic.as<kernels::AdamwDynamic>(),
                                             .random_offset = at},
                          stream);
          });
  }
}

void flat_kernels(KernelBench& x, const FlatBuffers& flat) {
  const int64_t total = flat.n * flat.layers;
  const double n = static_cast<double>(total);
  const std::string size = human_count(n);
  const device::DeviceBuffer sum = x.zeros(8);
  kernels::SumOfSquaresArgs squares{.n_buffers = narrow<int>(std::min<int64_t>(x.shape.layers, 64)),
                                    .sum = sum.as<double>(),
                                    .workspace = x.workspace.get()};
  for (int i = 0; i < squares.n_buffers; ++i) {
    squares.buffers[i] = flat.grad.as<float>() + flat.n * (i % flat.layers);
    squares.sizes[i] = flat.n;
  }
  x.add(fmt::format("sum_of_squares of {} layers of {}", squares.n_buffers, human_count(static_cast<double>(flat.n))),
        4.0 * squares.n_buffers * static_cast<double>(flat.n),
        [=](cudaStream_t stream) { return launch(squares, stream); });
  const kernels::CastArgs cast{.n = total, .from = flat.master.get(), .to = flat.compute.get()};
  x.add("cast fp32->bf16 " + size, 6 * n, [=](cudaStream_t stream) { return launch(cast, stream); });
  const kernels::CopyArgs copy{.bytes = 4 * total, .from = flat.master.get(), .to = flat.m.get()};
  x.add("copy fp32 " + size, 8 * n, [=](cudaStream_t stream) { return launch(copy, stream); });
  x.add("cudaMemsetAsync fp32 " + size, 4 * n, [&](cudaStream_t stream) {
    return cudaMemsetAsync(flat.m.get(), 0, static_cast<size_t>(flat.m.bytes()), stream);
  });
  const kernels::SplitWeightsArgs split{.n = total,
                                        .weights = flat.master.as<float>(),
                                        .bf16 = flat.compute.as<uint16_t>(),
                                        .remainder = flat.remainder.as<uint16_t>()};
  x.add("split weights " + size, 8 * n, [=](cudaStream_t stream) { return launch(split, stream); });
  const kernels::JoinWeightsArgs join{.n = total,
                                      .bf16 = flat.compute.as<uint16_t>(),
                                      .remainder = flat.remainder.as<uint16_t>(),
                                      .weights = flat.master.as<float>()};
  x.add("join weights " + size, 8 * n, [=](cudaStream_t stream) { return launch(join, stream); });
}

void scalar_kernels(KernelBench& x) {
  const device::DeviceBuffer squares = x.upload(std::vector<double>{1e6}),
                             losses = x.upload(std::vector<kernels::LossSums>{{1e4, 9000, 100}}),
                             lr = x.upload(std::vector<double>{1e-4}), clip = x.zeros(sizeof(kernels::ClipResult)),
                             dynamic = x.zeros(sizeof(kernels::AdamwDynamic));
  x.add("clip and adamw_prepare", 100, [&](cudaStream_t stream) {
    const cudaError_t error = launch(kernels::ClipArgs{.sums_of_squares = squares.as<double>(),
                                                       .losses = losses.as<kernels::LossSums>(),
                                                       .max_norm = 1,
                                                       .result = clip.as<kernels::ClipResult>()},
                                     stream);
    if (error != cudaSuccess) return error;
    return launch(kernels::AdamwPrepareArgs{.lr = lr.as<double>(),
                                            .clip = clip.as<kernels::ClipResult>(),
                                            .dynamic = dynamic.as<kernels::AdamwDynamic>()},
                  stream);
  });
}

}  // namespace

void time_optimizer_kernels(KernelBench& x) {
  const FlatBuffers flat(x);
  adamw(x, flat);
  flat_kernels(x, flat);
  scalar_kernels(x);
}

}  // namespace esm::bench
