#include <cmath>

#include "base/check.h"
#include "base/philox.h"
#include "bench/gemm_accuracy.h"
#include "bench/random_values_cuda.h"
#include "device/cuda_check.h"
#include "device/fp8_values.h"
#include "device/gemm.h"
#include "device/stream.h"

namespace esm::bench {
namespace {

constexpr float kScale = 1.0f / 64;  // of both operands: a normal value times 64 is far from both ends of FP8
constexpr int64_t kRowsOfX = 32, kRowsOfDy = 64;  // whose products are compared

/// Values of an operand, element i being i modulo their (odd) number, and what FP8 makes of them.
struct Pattern {
  std::vector<double> before, after;
  device::DeviceBuffer codes;
};

Pattern make_pattern(DType dtype, int64_t n, uint32_t which, float (*shape)(float), cudaStream_t stream) {
  Pattern p;
  std::vector<uint8_t> codes;
  for (uint64_t i = 0; i < (uint64_t{1} << 20) + 1; ++i) {
    const PhiloxResult r = philox(6, RandomStream::kSynthetic, i, which);
    const float value = shape(static_cast<float>(normal_pair(r.v[0], r.v[1])[0]));
    codes.push_back(device::fp8_from_float(dtype, value / kScale));
    p.before.push_back(value);
    p.after.push_back(device::float_from_fp8(dtype, codes.back()) * kScale);
  }
  p.codes = make_repeated("measured sums", codes.data(), static_cast<int64_t>(codes.size()), n, stream);
  return p;
}

double dot(const std::vector<double>& x, int64_t x_row, const std::vector<double>& y, int64_t y_row, int64_t k) {
  const auto period = static_cast<int64_t>(x.size());
  int64_t at_x = x_row * k % period, at_y = y_row * k % period;
  double sum = 0;
  for (int64_t i = 0; i < k; ++i) {
    sum += x[static_cast<size_t>(at_x)] * y[static_cast<size_t>(at_y)];
    if (++at_x == period) at_x = 0;
    if (++at_y == period) at_y = 0;
  }
  return sum;
}

struct Inputs {
  const char* name;
  float (*x)(float);
  float (*dy)(float);
};

float normal(float z) { return z; }
float gelu(float z) { return 0.5f * z * std::erfc(-z * 0.70710678f); }
float of_mean_one(float z) { return 1 + z; }

}  // namespace

std::vector<GemmAccuracy> measure_gemm_accuracy(int64_t hidden, int64_t tokens) {
  const device::Stream stream;
  const int64_t out = 4 * hidden;
  const device::DeviceBuffer result("measured sums", 4 * hidden * out);
  const device::DeviceBuffer scale = make_repeated("a scale", &kScale, sizeof kScale, sizeof kScale, stream.get());
  device::GemmContext gemm({.workspace_bytes = device::gemm_workspace_for(hidden * out)});
  std::vector<GemmAccuracy> all;
  for (const Inputs& inputs : {Inputs{"normal x normal", normal, normal},
                               {"GELU(normal) x normal", gelu, normal},
                               {"mean 1 x mean 1", of_mean_one, of_mean_one}}) {
    const Pattern x = make_pattern(DType::kF8E4M3, hidden * tokens, 1, inputs.x, stream.get());
    const Pattern dy = make_pattern(DType::kF8E5M2, out * tokens, 2, inputs.dy, stream.get());
    for (int64_t k = tokens; k >= 1024 && k % 16 == 0; k /= 4) {
      GemmAccuracy accuracy{.inputs = inputs.name, .k = k};
      std::vector<double> exact, unquantized;
      const auto each = [&](const auto& body) {
        for (int64_t j = 0; j < kRowsOfDy; ++j)
          for (int64_t i = 0; i < kRowsOfX; ++i) body(i * hidden / kRowsOfX, j * out / kRowsOfDy);
      };
      each([&](int64_t i, int64_t j) {
        exact.push_back(dot(x.after, i, dy.after, j, k));
        unquantized.push_back(dot(x.before, i, dy.before, j, k));
      });
      accuracy.quantization = sum_error(exact, unquantized).relative_l2;
      for (const bool fast : {false, true}) {
        gemm.run(device::Fp8WgradGemm{.tokens = k,
                                      .out = out,
                                      .in = hidden,
                                      .dy_t = {.dtype = DType::kF8E5M2},
                                      .fast_accumulation = fast,
                                      .accumulate = false},
                 {.dy_t = {.values = dy.codes.get(), .scale = scale.as<float>()},
                  .x_t = {.values = x.codes.get(), .scale = scale.as<float>()},
                  .dweight = result.get()},
                 stream.get());
        std::vector<float> host(static_cast<size_t>(hidden * out));
        ESM_CUDA(cudaMemcpyAsync(host.data(), result.get(), sizeof(float) * host.size(), cudaMemcpyDeviceToHost,
                                 stream.get()));
        stream.synchronize();
        std::vector<double> got;
        each([&](int64_t i, int64_t j) { got.push_back(host[static_cast<size_t>(j * hidden + i)]); });
        (fast ? accuracy.fast : accuracy.split) = sum_error(got, exact);
      }
      all.push_back(accuracy);
    }
  }
  return all;
}

}  // namespace esm::bench
