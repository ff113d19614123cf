#include "bench/ceilings.h"

#include "bench/median_us_cuda.h"
#include "bench/random_values_cuda.h"
#include "device/gemm.h"
#include "device/properties.h"
#include "kernels/copy.h"

namespace esm::bench {
namespace {

constexpr int kRounds = 9;

}  // namespace

CopyRates measure_copy() {
  constexpr int64_t kStep = int64_t{1} << 20;
  const int64_t wanted = std::min(int64_t{4} << 30, device::device_memory().free_bytes / 3);
  CopyRates rates{.bytes = std::max(wanted / kStep, int64_t{1}) * kStep};
  const device::Stream stream;
  const RandomValues values;
  const device::DeviceBuffer from = values.make("a measured copy", DType::kF32, rates.bytes / 4, stream.get());
  const device::DeviceBuffer to("a measured copy", rates.bytes);
  const auto library = [&] {
    ESM_CUDA(cudaMemcpyAsync(to.get(), from.get(), static_cast<size_t>(rates.bytes), cudaMemcpyDeviceToDevice,
                             stream.get()));
  };
  const auto kernel = [&] {
    ESM_CUDA(
        kernels::launch(kernels::CopyArgs{.bytes = rates.bytes, .from = from.get(), .to = to.get()}, stream.get()));
  };
  const device::Graph graph = device::Graph::capture(stream.get(), library);
  const device::DeviceBuffer no_flush;  // the buffers are many times the L2 cache
  const std::vector<double> us =
      median_us(stream.get(), kRounds, no_flush, {library, [&] { graph.launch(stream.get()); }, kernel});
  const auto rate = [&](double microseconds) { return 2 * static_cast<double>(rates.bytes) / microseconds * 1e-3; };
  rates.library = rate(us[0]);
  rates.library_in_graph = rate(us[1]);
  rates.kernel = rate(us[2]);
  return rates;
}

GemmCeiling measure_gemm() {
  constexpr int64_t n = GemmCeiling::kSize;
  int index = 0;
  ESM_CUDA(cudaGetDevice(&index));
  const device::Stream stream;
  const RandomValues values;
  const device::DeviceBuffer x = values.make("a measured product", DType::kBF16, n * n, stream.get());
  const device::DeviceBuffer weight = values.make("a measured product", DType::kBF16, n * n, stream.get());
  const device::DeviceBuffer y("a measured product", 2 * n * n);
  const device::DeviceBuffer flush("a cache flush", 2 * device::properties(index).l2_bytes);
  device::GemmContext gemm({});
  const device::LinearForwardGemm product{.tokens = n, .out = n, .in = n};
  const double us =
      median_us(stream.get(), kRounds, flush,
                {[&] { gemm.run(product, {.x = x.get(), .weight = weight.get(), .y = y.get()}, stream.get()); }})[0];
  return {.tflops = product.desc().flops() / us * 1e-6};
}

Fp8GemmCeiling measure_fp8_gemm() {
  constexpr int64_t n = GemmCeiling::kSize;
  int index = 0;
  ESM_CUDA(cudaGetDevice(&index));
  const device::Stream stream;
  const device::DeviceBuffer x = make_fp8_values("a measured product", DType::kF8E4M3, n * n, 1, stream.get());
  const device::DeviceBuffer weight = make_fp8_values("a measured product", DType::kF8E4M3, n * n, 2, stream.get());
  const device::DeviceBuffer y("a measured product", 2 * n * n);
  const device::DeviceBuffer flush("a cache flush", 2 * device::properties(index).l2_bytes);
  const float one = 1;
  const device::DeviceBuffer scale = make_repeated("a scale", &one, sizeof one, sizeof one, stream.get());
  device::GemmContext gemm({});
  const auto product = [&](bool fast) {
    gemm.run(device::Fp8ForwardGemm{.tokens = n, .out = n, .in = n, .fast_accumulation = fast},
             {.x = {.values = x.get(), .scale = scale.as<float>()},
              .weight = {.values = weight.get(), .scale = scale.as<float>()},
              .y = y.get()},
             stream.get());
  };
  const std::vector<double> us =
      median_us(stream.get(), kRounds, flush, {[&] { product(true); }, [&] { product(false); }});
  const double flops = 2.0 * n * n * n;
  return {.fast_tflops = flops / us[0] * 1e-6, .split_tflops = flops / us[1] * 1e-6};
}

}  // namespace esm::bench
