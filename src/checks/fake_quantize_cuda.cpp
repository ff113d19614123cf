// Emulated formats against their CPU twin, which is tested by definition in tests/unit/ops: every bit is equal.
#include "kernels/fake_quantize.h"

#include "checks/cases/fake_quantize.h"
#include "checks/fp8_harness.h"
#include "kernels/fp8_scale.h"
#include "ops/quantize_cpu.h"
#include "precision/formats.h"

namespace esm::checks {
namespace {

using kernels::FakeFormat;
using precision::Format;
using precision::Grouping;

constexpr float kPoisoned = 3e38f;

/// Largest magnitude of the rows that count.
float amax_of(const std::vector<float>& x, size_t counted) {
  uint32_t top = 0;
  for (size_t i = 0; i < counted; ++i) top = std::max(top, kernels::amax_bits(x[i]));
  return kernels::float_of(top);
}

/// [rows, cols] there and back on the CPU, as an operand of its own orientation.
std::vector<float> twin(const std::vector<float>& x, const cases::FakeQuantizeCase& c, int64_t counted,
                        FakeFormat format, bool along_rows, float amax) {
  const bool nv = format == FakeFormat::kNv16;
  const precision::Operand operand{.format = nv ? Format::kE2M1 : Format::kE4M3,
                                   .grouping = nv ? Grouping::kNv16 : Grouping::kMx32};
  const int64_t rows = along_rows ? c.cols : c.rows, k = along_rows ? c.rows : c.cols;
  const precision::OperandLayout layout = precision::layout(operand, rows, k);
  std::vector<uint8_t> codes(static_cast<size_t>(rows * layout.code_bytes)),
      inverses(static_cast<size_t>(layout.scales));
  std::vector<float> values(x.size());
  const float scale = nv ? kernels::nv_tensor_scale(amax) : 1.0f;
  const ops::cpu::Quantize<float> there{.rows = rows,
                                        .k = k,
                                        .valid_rows = along_rows ? rows : counted,
                                        .valid_k = along_rows ? counted : k,
                                        .row_stride = along_rows ? 1 : c.cols,
                                        .k_stride = along_rows ? c.cols : 1,
                                        .x = x.data(),
                                        .format = operand.format,
                                        .grouping = operand.grouping,
                                        .scale = scale,
                                        .row_bytes = layout.code_bytes,
                                        .codes = codes.data(),
                                        .inverses = nullptr,
                                        .inverse_bytes = inverses.data()};
  const ops::cpu::Dequantize back{.rows = rows,
                                  .k = k,
                                  .format = operand.format,
                                  .grouping = operand.grouping,
                                  .scale = scale,
                                  .row_bytes = layout.code_bytes,
                                  .codes = codes.data(),
                                  .inverses = nullptr,
                                  .inverse_bytes = inverses.data(),
                                  .y = values.data()};
  for (int64_t band = 0; band * ops::cpu::kBandRows < rows; ++band) {
    ops::cpu::quantize_band(there, band);
    ops::cpu::dequantize_band(back, band);
  }
  std::vector<float> y(x.size());
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < k; ++i)
      y[static_cast<size_t>(along_rows ? i * rows + r : r * k + i)] = values[static_cast<size_t>(r * k + i)];
  Activations::round(DType::kBF16, y);
  return y;
}

/// NaN is NaN, whatever its payload.
size_t unlike(const std::vector<float>& a, const std::vector<float>& b) {
  size_t n = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i)
    n += !(std::isnan(a[i]) && std::isnan(b[i])) && kernels::bits_of(a[i]) != kernels::bits_of(b[i]);
  return n;
}

void check(const cases::FakeQuantizeCase& c, std::vector<float> x, const char* what, Report& report) {
  const int64_t counted = counted_of(c.rows, c.counted);
  const size_t counted_elements = static_cast<size_t>(counted * c.cols);
  for (size_t i = counted_elements; i < x.size(); ++i) x[i] = i % 2 == 0 ? NAN : kPoisoned;
  const Activations device(DType::kBF16, x);
  Activations y(DType::kBF16, x.size());
  const float amax = amax_of(x, counted_elements);
  const DeviceBuffer<float> device_amax(std::vector<float>{amax});
  const RowCount count(c.counted);
  for (const FakeFormat format : {FakeFormat::kMx32, FakeFormat::kNv16})
    for (const bool along_rows : {false, true}) {
      std::string name = text("fake_quantize %s %s %lldx%lld%s", format == FakeFormat::kMx32 ? "mx" : "nv",
                              along_rows ? "along rows" : "along columns", static_cast<long long>(c.rows),
                              static_cast<long long>(c.cols), what);
      if (c.counted >= 0) name += text(" of %lld rows", static_cast<long long>(c.counted));
      const std::vector<float> want = twin(x, c, counted, format, along_rows, amax);
      kernels::FakeQuantizeArgs args{.format = format,
                                     .along_rows = along_rows,
                                     .rows = c.rows,
                                     .cols = c.cols,
                                     .x = device.get(),
                                     .row_count = count.get(),
                                     .amax = format == FakeFormat::kNv16 ? device_amax.get() : nullptr,
                                     .y = y.get()};
      y.poison();
      CHECK_CUDA(launch(args, nullptr));
      report.equal(name, unlike(y.download(), want));
      y.upload(x);
      args.x = y.get();
      CHECK_CUDA(launch(args, nullptr));
      report.equal(name + " in place", unlike(y.download(), want));
    }
}

}  // namespace

void fake_quantize_checks(Random& random, Report& report) {
  std::vector<float> every(0x10000);  // BF16 values in their order: groups of one magnitude
  for (uint32_t bits = 0; bits < every.size(); ++bits) every[bits] = float_from_bf16(static_cast<uint16_t>(bits));
  check({256, 256, -1}, every, ", every value", report);
  std::vector<float> finite = every;  // so that the factor of the tensor is not 1
  for (float& value : finite) value = std::isfinite(value) ? value : 0.0f;
  check({256, 256, -1}, finite, ", every finite value", report);
  for (const cases::FakeQuantizeCase& c : cases::fake_quantize_cases()) {
    std::vector<float> x = random.normals(c.rows * c.cols);
    // Magnitudes that differ from place to place; some groups of zeros.
    for (int64_t i = 0; i < c.rows * c.cols; ++i) {
      const int64_t r = i / c.cols, k = i % c.cols;
      x[static_cast<size_t>(i)] *=
          (r / 48 + k / 48) % 7 == 0 ? 0.0f : std::exp2(static_cast<float>((r / 5 * 7 + k / 24 * 3) % 23 - 11));
    }
    check(c, x, "", report);
  }
}

}  // namespace esm::checks
