#include "kernels/rotary.h"

#include "checks/cases/rotary.h"
#include "checks/harness.h"

namespace esm::checks {
namespace {

void rotate(const cases::RotaryCase& c, DType dtype, bool inverse, Random& random, Report& report) {
  const int64_t half = c.head_dim / 2, max_position = 1100;
  const size_t row = static_cast<size_t>(3 * c.heads * c.head_dim);
  std::vector<float> cos, sin;
  for (int64_t p = 0; p < max_position; ++p)
    for (int64_t i = 0; i < half; ++i) {
      const double angle =
          static_cast<double>(p) * std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(c.head_dim));
      cos.push_back(static_cast<float>(std::cos(angle)));
      sin.push_back(static_cast<float>(std::sin(angle)));
    }
  std::vector<int32_t> positions;
  for (int64_t t = 0; t < c.tokens; ++t) positions.push_back(static_cast<int32_t>(random.below(max_position)));
  std::vector<float> x = random.normals(c.tokens * static_cast<int64_t>(row));
  Activations device(dtype, x);
  DeviceBuffer<float> device_cos(cos), device_sin(sin);
  DeviceBuffer<int32_t> device_positions(positions);
  CHECK_CUDA(launch(kernels::RotaryArgs{.dtype = dtype,
                                        .tokens = c.tokens,
                                        .heads = c.heads,
                                        .head_dim = c.head_dim,
                                        .qkv = device.get(),
                                        .positions = device_positions.get(),
                                        .cos = device_cos.get(),
                                        .sin = device_sin.get(),
                                        .inverse = inverse},
                    nullptr));
  std::vector<double> want(x.begin(), x.end()), scale(x.size());
  for (size_t t = 0; t < static_cast<size_t>(c.tokens); ++t)
    for (size_t h = 0; h < static_cast<size_t>(2 * c.heads); ++h)
      for (size_t i = 0; i < static_cast<size_t>(half); ++i) {
        const size_t a = t * row + h * static_cast<size_t>(c.head_dim) + i, b = a + static_cast<size_t>(half);
        const size_t entry = static_cast<size_t>(positions[t]) * static_cast<size_t>(half) + i;
        const double co = cos[entry], si = inverse ? -sin[entry] : sin[entry];
        want[a] = x[a] * co - x[b] * si;
        want[b] = x[b] * co + x[a] * si;
        scale[a] = scale[b] = std::abs(x[a]) + std::abs(x[b]);
      }
  report.close(text("rotary %s %lld tokens %lld heads of %lld%s", name_of(dtype), static_cast<long long>(c.tokens),
                    static_cast<long long>(c.heads), static_cast<long long>(c.head_dim), inverse ? " inverse" : ""),
               device.download(), want, [&](size_t i) {
                 return scale[i] == 0 ? 0 : 1.01 * rounding(dtype) * std::abs(want[i]) + 1.2e-7 * scale[i];
               });
}

void geometry(const std::vector<int32_t>& lengths, int64_t capacity, Report& report, const char* name) {
  std::vector<int32_t> cu{0}, positions;
  for (const int32_t length : lengths) {
    for (int32_t k = 0; k < length; ++k) positions.push_back(k);
    cu.push_back(cu.back() + length);
  }
  cu.resize(static_cast<size_t>(capacity + 1), cu.back());
  DeviceBuffer<int32_t> device_cu(cu), device_positions(positions.size());
  const kernels::PackGeometryArgs args{.tokens = static_cast<int64_t>(positions.size()),
                                       .segments = capacity,
                                       .cu_seqlens = device_cu.get(),
                                       .positions = device_positions.get()};
  CHECK_CUDA(launch(args, nullptr));
  report.same(text("pack_geometry %s positions", name), device_positions.download(), positions);
}

}  // namespace

void rotary_checks(Random& random, Report& report) {
  for (const DType dtype : {DType::kBF16, DType::kF32})
    for (const cases::RotaryCase& c : cases::rotary_cases())
      for (const bool inverse : {false, true}) rotate(c, dtype, inverse, random, report);
  std::vector<int32_t> mixed;
  for (int i = 0; i < 200; ++i) mixed.push_back(static_cast<int32_t>(1 + random.below(700)));
  geometry(mixed, 512, report, "200 of 512");
  geometry(std::vector<int32_t>(1000, 1), 1000, report, "1000 of one token");
  geometry({8000}, 1, report, "one of 8000");
  geometry({5, 0, 0, 7, 0}, 9, report, "with empty ones");
}

}  // namespace esm::checks
