#include "kernels/fp8_counts.h"

#include "checks/cases/quantize.h"
#include "checks/fp8_harness.h"

namespace esm::checks {
namespace {

std::string case_name(const char* what, const cases::QuantizeCase& c) {
  std::string name = text("%s %lldx%lld", what, static_cast<long long>(c.rows), static_cast<long long>(c.cols));
  if (c.counted >= 0) name += text(" of %lld rows", static_cast<long long>(c.counted));
  return name;
}

void counts(const cases::QuantizeCase& c, DType dtype, Random& random, Report& report) {
  const bool e4m3 = dtype == DType::kF8E4M3;
  std::vector<uint8_t> codes(static_cast<size_t>(c.rows * c.cols));  // every code; more at the ends of the range
  for (uint8_t& code : codes) {
    const uint32_t word = random.word(), kind = word >> 8 & 7;
    code = static_cast<uint8_t>(kind == 0 ? word & 0x80 : kind == 1 ? (word & 0x80) | (0x78 + (word & 7)) : word);
  }
  const std::vector<uint64_t> before{1000, 1ull << 40};
  std::vector<uint64_t> want = before;
  for (size_t i = 0; i < static_cast<size_t>(counted_of(c.rows, c.counted) * c.cols); ++i) {
    const float value = e4m3 ? kernels::decode_e4m3(codes[i]) : kernels::decode_e5m2(codes[i]);
    want[0] += value == 0;
    want[1] += !(std::abs(value) < (e4m3 ? kernels::kMaxE4M3 : kernels::kMaxE5M2));
  }
  const DeviceBuffer<uint8_t> device(codes);
  DeviceBuffer<uint64_t> got(before);
  const RowCount count(c.counted);
  CHECK_CUDA(launch(kernels::Fp8CountsArgs{.dtype = dtype,
                                           .rows = c.rows,
                                           .cols = c.cols,
                                           .x = device.get(),
                                           .row_count = count.get(),
                                           .counts = got.get()},
                    nullptr));
  report.same(case_name(text("fp8_counts %s", name_of_fp8(dtype)).c_str(), c), got.download(), want);
}

void moments(const cases::QuantizeCase& c, float size, Random& random, Report& report) {
  std::vector<float> x = random.normals(c.rows * c.cols, size, 0.1f * size);
  const size_t counted = static_cast<size_t>(counted_of(c.rows, c.counted) * c.cols);
  for (size_t i = counted; i < x.size(); ++i) x[i] = NAN;
  const Activations device(DType::kBF16, x);
  double sum = 0, magnitudes = 0, squares = 0;
  for (size_t i = 0; i < counted; ++i) {
    sum += x[i];
    magnitudes += std::abs(x[i]);
    squares += static_cast<double>(x[i]) * x[i];
  }
  DeviceBuffer<double> got(2);
  DeviceBuffer<uint8_t> workspace(kernels::moments_workspace());
  const RowCount count(c.counted);
  const kernels::MomentsArgs args{.rows = c.rows,
                                  .cols = c.cols,
                                  .x = device.get(),
                                  .row_count = count.get(),
                                  .moments = got.get(),
                                  .workspace = workspace.get()};
  CHECK_CUDA(launch(args, nullptr));
  const std::string name = case_name(text("moments of size %g", size).c_str(), c);
  const std::vector<double> first = got.download();
  // Relative to what was added up; all zero where no row counts.
  const auto relative = [](double error, double scale) {
    return static_cast<float>(scale == 0 ? error : error / scale);
  };
  report.close(name, {relative(first[0] - sum, magnitudes), relative(first[1] - squares, squares)}, {0.0, 0.0},
               [](size_t) { return 1e-12; });
  got.poison();
  workspace.poison();
  CHECK_CUDA(launch(args, nullptr));
  report.same(name + " twice", first, got.download());
}

}  // namespace

void fp8_counts_checks(Random& random, Report& report) {
  for (const cases::QuantizeCase& c : cases::quantize_cases()) {
    for (const DType dtype : {DType::kF8E4M3, DType::kF8E5M2}) counts(c, dtype, random, report);
    for (const float size : {1.0f, 1e30f, 1e-30f}) moments(c, size, random, report);  // squares beyond FP32
  }
}

}  // namespace esm::checks
