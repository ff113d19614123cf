// Emulated formats against their CPU twin: every bit is equal.
#include "kernels/fake_quantize.h"

#include "checks/cases/fake_quantize.h"
#include "checks/fp8_harness.h"
#include "checks/group_reference.h"

namespace esm::checks {
namespace {

using kernels::GroupFormat;

void check(const cases::FakeQuantizeCase& c, std::vector<float> x, const char* what, Report& report) {
  const int64_t counted = counted_of(c.rows, c.counted);
  const size_t counted_elements = static_cast<size_t>(counted * c.cols);
  poison_padding(x, counted_elements);
  const Activations device(DType::kBF16, x);
  Activations y(DType::kBF16, x.size());
  const float amax = amax_of(x, counted_elements);
  const DeviceBuffer<float> device_amax(std::vector<float>{amax});
  const RowCount count(c.counted);
  for (const GroupFormat format : {GroupFormat::kMx32, GroupFormat::kNv16})
    for (const bool along_rows : {false, true}) {
      std::string name =
          text("fake_quantize %s %s %lldx%lld%s", name_of(format), along_rows ? "along rows" : "along columns",
               static_cast<long long>(c.rows), static_cast<long long>(c.cols), what);
      if (c.counted >= 0) name += text(" of %lld rows", static_cast<long long>(c.counted));
      std::vector<float> want = group_operand(x, c.rows, c.cols, counted, format, along_rows, amax).values;
      Activations::round(DType::kBF16, want);
      kernels::FakeQuantizeArgs args{.format = format,
                                     .along_rows = along_rows,
                                     .rows = c.rows,
                                     .cols = c.cols,
                                     .x = device.get(),
                                     .row_count = count.get(),
                                     .amax = format == GroupFormat::kNv16 ? device_amax.get() : nullptr,
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
  check({256, 256, -1}, every_bf16(false), ", every value", report);
  check({256, 256, -1}, every_bf16(true), ", every finite value", report);
  for (const cases::FakeQuantizeCase& c : cases::fake_quantize_cases())
    check(c, uneven(c.rows, c.cols, random), "", report);
}

}  // namespace esm::checks
