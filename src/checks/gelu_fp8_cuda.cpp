#include "kernels/gelu_fp8.h"

#include "checks/cases/quantize.h"
#include "checks/fp8_harness.h"

// The kernels of BF16 (held against FP64 by the family "gelu"), then a cast on the host: equal bytes.
namespace esm::checks {
namespace {

using kernels::GeluForm;

void check(const cases::QuantizeCase& c, GeluForm form, DType gradient, Random& random, Report& report) {
  const int64_t n = c.rows * c.cols, counted = counted_of(c.rows, c.counted);
  const float y_scale = 64.0f, dx_scale = gradient == DType::kF8E4M3 ? 128.0f : 1024.0f;
  std::vector<float> x = random.normals(n, 1.7f), dy = random.normals(n, 0.6f, 0.1f);
  const Activations device_x(DType::kBF16, x), device_dy(DType::kBF16, dy), y(DType::kBF16, x.size()),
      dx(DType::kBF16, x.size());
  CHECK_CUDA(launch(kernels::GeluArgs{.form = form, .rows = c.rows, .cols = c.cols, .x = device_x.get(), .y = y.get()},
                    nullptr));
  CHECK_CUDA(launch(
      kernels::GeluBackwardArgs{
          .form = form, .rows = c.rows, .cols = c.cols, .x = device_x.get(), .dy = device_dy.get(), .dx = dx.get()},
      nullptr));
  const std::vector<float> values = y.download(), slopes = dx.download();
  const Fp8Matrix want_y = fp8_matrix(values, c.rows, c.cols, counted, DType::kF8E4M3, y_scale),
                  want_dx = fp8_matrix(slopes, c.rows, c.cols, counted, gradient, dx_scale);

  const RowCount count(c.counted);
  Fp8Buffers out_y(DType::kF8E4M3, n, y_scale), out_dx(gradient, n, dx_scale);
  std::string name = text("gelu_fp8 %s %s %lldx%lld", form == GeluForm::kErf ? "erf" : "tanh", name_of_fp8(gradient),
                          static_cast<long long>(c.rows), static_cast<long long>(c.cols));
  if (c.counted >= 0) name += text(" of %lld rows", static_cast<long long>(c.counted));
  CHECK_CUDA(launch(kernels::GeluFp8Args{.form = form,
                                         .rows = c.rows,
                                         .cols = c.cols,
                                         .x = device_x.get(),
                                         .row_count = count.get(),
                                         .y = out_y.out(true, false)},
                    nullptr));
  report.same(name + " y", out_y.rows(), want_y.rows);
  report.same(name + " y amax", out_y.amax(), {want_y.amax});

  const std::vector<float> before = random.normals(c.cols);
  DeviceBuffer<float> sums(before);
  DeviceBuffer<uint8_t> workspace(kernels::gelu_fp8_backward_workspace(c.rows, c.cols));
  kernels::GeluFp8BackwardArgs args{.form = form,
                                    .rows = c.rows,
                                    .cols = c.cols,
                                    .x = device_x.get(),
                                    .dy = device_dy.get(),
                                    .row_count = count.get(),
                                    .dx = out_dx.out(true, true),
                                    .y = out_y.out(false, true),
                                    .dx_sum = sums.get(),
                                    .workspace = workspace.get()};
  out_y.reset();
  CHECK_CUDA(launch(args, nullptr));
  report.same(name + " dx", out_dx.rows(), want_dx.rows);
  report.same(name + " dx transposed", out_dx.transposed(), want_dx.transposed);
  report.same(name + " dx amax", out_dx.amax(), {want_dx.amax});
  report.same(name + " y transposed", out_y.transposed(), want_y.transposed);
  report.same(name + " y amax again", out_y.amax(), {want_y.amax});
  // dx before its rounding to BF16.
  std::vector<double> want_sum(before.begin(), before.end()), sizes(before.size());
  for (int64_t i = 0; i < counted * c.cols; ++i) {
    want_sum[static_cast<size_t>(i % c.cols)] += slopes[static_cast<size_t>(i)];
    sizes[static_cast<size_t>(i % c.cols)] += std::abs(slopes[static_cast<size_t>(i)]);
  }
  const std::vector<float> got = sums.download();
  report.close(name + " dx_sum", got, want_sum,
               [&](size_t k) { return rounding(DType::kBF16) * sizes[k] + 2e-6 * (1 + sizes[k]); });

  // Measured only, both ways.
  for (Fp8Buffers* out : {&out_y, &out_dx}) out->reset();
  args.dx = out_dx.out(false, false);
  args.y = {};
  args.dx_sum = nullptr;
  CHECK_CUDA(launch(args, nullptr));
  CHECK_CUDA(launch(kernels::GeluFp8Args{.form = form,
                                         .rows = c.rows,
                                         .cols = c.cols,
                                         .x = device_x.get(),
                                         .row_count = count.get(),
                                         .y = out_y.out(false, false)},
                    nullptr));
  report.same(name + " dx measured", out_dx.amax(), {want_dx.amax});
  report.same(name + " y measured", out_y.amax(), {want_y.amax});

  args.dx = out_dx.out(true, true);
  args.dx_sum = sums.get();
  sums.upload(before);
  workspace.poison();
  out_dx.reset();
  CHECK_CUDA(launch(args, nullptr));
  report.same(name + " dx twice", out_dx.rows(), want_dx.rows);
  report.same(name + " dx_sum twice", got, sums.download());
}

}  // namespace

void gelu_fp8_checks(Random& random, Report& report) {
  for (const GeluForm form : {GeluForm::kErf, GeluForm::kTanh})
    for (const cases::QuantizeCase& c : cases::quantize_cases()) {
      check(c, form, DType::kF8E5M2, random, report);
      if (c.cols == 1280) check(c, form, DType::kF8E4M3, random, report);
    }
}

}  // namespace esm::checks
