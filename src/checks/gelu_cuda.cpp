#include "kernels/gelu.h"

#include "checks/cases/gelu.h"
#include "checks/harness.h"

namespace esm::checks {
namespace {

using kernels::GeluArgs;
using kernels::GeluBackwardArgs;
using kernels::GeluForm;

struct Point {
  double value, slope;
};

Point reference(GeluForm form, double x) {
  if (form == GeluForm::kErf) {
    const double cdf = 0.5 * std::erfc(-x * 0.70710678118654752440);
    return {x * cdf, cdf + x * 0.39894228040143267794 * std::exp(-0.5 * x * x)};
  }
  const double root = 1.5957691216057307117;
  const double s = 1 / (1 + std::exp(-root * x * (1 + 0.044715 * x * x)));
  return {x * s, s + x * s * (1 - s) * root * (1 + 3 * 0.044715 * x * x)};
}

// One unit in the last place of BF16 at `value`; the floor is where FP32 itself becomes subnormal.
double bf16_ulp(double value) {
  int exponent;
  std::frexp(std::max(std::abs(value), 0x1p-118), &exponent);
  return std::ldexp(1.0, exponent - 8);
}

double value_bound(DType dtype, double x, double want) {
  return dtype == DType::kBF16 ? bf16_ulp(want) : 2e-7 * std::max(1.0, std::abs(x));
}
// The slope crosses 0 near -0.75 and beyond -2 it is a difference, so an absolute part joins.
double slope_bound(DType dtype, double dy, double want) {
  return dtype == DType::kBF16 ? bf16_ulp(want) + 5e-5 * std::abs(dy) : 6e-7 * std::abs(dy);
}

const char* name_of_form(GeluForm form) { return form == GeluForm::kErf ? "erf" : "tanh"; }

void forward(GeluForm form, DType dtype, std::vector<float> x, int64_t rows, int64_t cols, const std::string& name,
             Report& report) {
  Activations device_x(dtype, x), device_y(dtype, x.size());
  CHECK_CUDA(launch(
      GeluArgs{.dtype = dtype, .form = form, .rows = rows, .cols = cols, .x = device_x.get(), .y = device_y.get()},
      nullptr));
  std::vector<double> want(x.size());
  for (size_t i = 0; i < x.size(); ++i) want[i] = reference(form, x[i]).value;
  const auto y = device_y.download();
  report.close(name + " y", y, want, [&](size_t i) { return value_bound(dtype, x[i], want[i]); });
  CHECK_CUDA(launch(
      GeluArgs{.dtype = dtype, .form = form, .rows = rows, .cols = cols, .x = device_x.get(), .y = device_x.get()},
      nullptr));
  report.same(name + " y in place", y, device_x.download());
}

void backward(GeluForm form, DType dtype, const cases::GeluCase& c, bool output, bool sum, Random& random,
              Report& report) {
  const size_t n = static_cast<size_t>(c.rows * c.cols), cols = static_cast<size_t>(c.cols);
  std::vector<float> x = random.normals(c.rows * c.cols, 1.7f), dy = random.normals(c.rows * c.cols, 0.6f, 0.1f);
  Activations device_x(dtype, x), device_dy(dtype, dy), device_dx(dtype, n), device_y(dtype, n);
  const std::vector<float> before = random.normals(c.cols);
  DeviceBuffer<float> dx_sum(before);
  DeviceBuffer<uint8_t> workspace(kernels::gelu_backward_workspace(c.rows, c.cols));
  GeluBackwardArgs args{.dtype = dtype,
                        .form = form,
                        .rows = c.rows,
                        .cols = c.cols,
                        .x = device_x.get(),
                        .dy = device_dy.get(),
                        .dx = device_dx.get(),
                        .y = output ? device_y.get() : nullptr,
                        .dx_sum = sum ? dx_sum.get() : nullptr,
                        .workspace = workspace.get()};
  CHECK_CUDA(launch(args, nullptr));
  const auto got_dx = device_dx.download(), got_y = device_y.download(), got_sum = dx_sum.download();

  // As the encoder layer calls it: in place of dy.
  args.dx = device_dy.get();
  dx_sum.upload(before);
  workspace.poison();
  CHECK_CUDA(launch(args, nullptr));

  std::vector<double> want_dx(n), want_y(n), sums(before.begin(), before.end()), sizes(cols);
  for (size_t i = 0; i < n; ++i) {
    const Point p = reference(form, x[i]);
    want_y[i] = p.value;
    want_dx[i] = p.slope * dy[i];
    sums[i % cols] += want_dx[i];
    sizes[i % cols] += std::abs(dy[i]);
  }
  const std::string name =
      text("gelu_backward %s %s %lldx%lld%s%s", name_of_form(form), name_of(dtype), static_cast<long long>(c.rows),
           static_cast<long long>(c.cols), output ? " y" : "", sum ? " sum" : "");
  report.close(name + " dx", got_dx, want_dx, [&](size_t i) { return slope_bound(dtype, dy[i], want_dx[i]); });
  if (output) report.close(name + " y", got_y, want_y, [&](size_t i) { return value_bound(dtype, x[i], want_y[i]); });
  if (sum)
    report.close(name + " dx_sum", got_sum, sums, [&](size_t k) {
      return (dtype == DType::kBF16 ? 3e-5 : 2e-6) * sizes[k] + 1e-6 * (1 + std::abs(sums[k]));
    });
  report.equal(name + " twice", different(got_dx, device_dy.download()) + different(got_sum, dx_sum.download()) +
                                    (output ? different(got_y, device_y.download()) : 0));
}

}  // namespace

void gelu_checks(Random& random, Report& report) {
  for (const DType dtype : {DType::kBF16, DType::kF32})
    for (const GeluForm form : {GeluForm::kErf, GeluForm::kTanh}) {
      const std::string name = text("gelu %s %s", name_of_form(form), name_of(dtype));
      // Every BF16 value of the interval [-13, 13] (tanh form: [-9, 9], its tail leaves FP32 at -10); in FP32 a fine
      // grid.
      std::vector<float> sweep;
      const float limit = form == GeluForm::kErf ? 13.0f : 9.0f;
      for (uint32_t bits = 0; bits < 0x10000; ++bits) {
        const float x = float_from_bf16(static_cast<uint16_t>(bits));
        if (std::abs(x) <= limit) sweep.push_back(dtype == DType::kBF16 ? x : x * random.uniform(0.995f, 1.0f));
      }
      while (sweep.size() % 8 != 0) sweep.push_back(0.0f);
      forward(form, dtype, sweep, static_cast<int64_t>(sweep.size()) / 8, 8, name + " sweep", report);
      forward(form, dtype, random.normals(1003 * 1032, 1.6f), 1003, 1032, name + " 1003x1032", report);
      int which = 0;
      for (const cases::GeluCase& c : cases::gelu_cases()) {
        const bool middle = c.cols == 1280;
        backward(form, dtype, c, true, which++ % 3 != 2, random, report);
        if (middle) {
          backward(form, dtype, c, false, true, random, report);
          backward(form, dtype, c, false, false, random, report);
          backward(form, dtype, c, true, false, random, report);
        }
      }
    }
}

}  // namespace esm::checks
