#include "kernels/layer_norm.h"

#include "checks/cases/layer_norm.h"
#include "checks/harness.h"

namespace esm::checks {
namespace {

using kernels::LayerNormArgs;
using kernels::LayerNormBackwardArgs;

void forward(const cases::LayerNormCase& c, DType dtype, Random& random, Report& report) {
  const size_t n = static_cast<size_t>(c.rows * c.cols);
  std::vector<float> x = random.normals(static_cast<int64_t>(n), 1.5f, 0.7f);
  std::vector<float> gamma = random.normals(c.cols, 0.3f, 1.0f), beta = random.normals(c.cols, 0.2f);
  Activations dx(dtype, x), dgamma(dtype, gamma), dbeta(dtype, beta), dy(dtype, n), again(dtype, n);
  DeviceBuffer<float> mean(static_cast<size_t>(c.rows)), rstd(static_cast<size_t>(c.rows));
  LayerNormArgs args{.dtype = dtype,
                     .rows = c.rows,
                     .cols = c.cols,
                     .x = dx.get(),
                     .gamma = dgamma.get(),
                     .beta = dbeta.get(),
                     .eps = 1e-5f,
                     .y = dy.get(),
                     .mean = mean.get(),
                     .rstd = rstd.get()};
  CHECK_CUDA(launch(args, nullptr));
  args.y = again.get();
  args.mean = args.rstd = nullptr;
  CHECK_CUDA(launch(args, nullptr));

  std::vector<double> want(n), want_mean(static_cast<size_t>(c.rows)), want_rstd(static_cast<size_t>(c.rows));
  for (int64_t r = 0; r < c.rows; ++r) {
    const float* row = &x[static_cast<size_t>(r * c.cols)];
    double m = 0, v = 0;
    for (int64_t k = 0; k < c.cols; ++k) m += row[k];
    m /= static_cast<double>(c.cols);
    for (int64_t k = 0; k < c.cols; ++k) v += (row[k] - m) * (row[k] - m);
    const double s = 1 / std::sqrt(v / static_cast<double>(c.cols) + 1e-5);
    want_mean[static_cast<size_t>(r)] = m;
    want_rstd[static_cast<size_t>(r)] = s;
    for (int64_t k = 0; k < c.cols; ++k)
      want[static_cast<size_t>(r * c.cols + k)] =
          (row[k] - m) * s * gamma[static_cast<size_t>(k)] + beta[static_cast<size_t>(k)];
  }
  const std::string name =
      text("layer_norm %s %lldx%lld", name_of(dtype), static_cast<long long>(c.rows), static_cast<long long>(c.cols));
  const auto y = dy.download();
  report.close(name + " y", y, want, [&](size_t i) { return 1.01 * rounding(dtype) * std::abs(want[i]) + 4e-6; });
  report.close(name + " mean", mean.download(), want_mean, [](size_t) { return 2e-6; });
  report.close(name + " rstd", rstd.download(), want_rstd, [&](size_t i) { return 2e-6 * want_rstd[i]; });
  report.same(name + " y twice", y, again.download());
}

struct Options {
  bool residual, output, sum, in_place;
};

void backward(const cases::LayerNormCase& c, DType dtype, const Options& o, Random& random, Report& report) {
  const size_t n = static_cast<size_t>(c.rows * c.cols), rows = static_cast<size_t>(c.rows),
               cols = static_cast<size_t>(c.cols);
  std::vector<float> x = random.normals(c.rows * c.cols, 1.5f, 0.7f), dy = random.normals(c.rows * c.cols, 0.5f, 0.1f),
                     residual = random.normals(c.rows * c.cols, 0.8f);
  std::vector<float> gamma = random.normals(c.cols, 0.3f, 1.0f), beta = random.normals(c.cols, 0.2f);
  Activations device_x(dtype, x), device_dy(dtype, dy), device_residual(dtype, residual), device_gamma(dtype, gamma),
      device_beta(dtype, beta), device_dx(dtype, n), device_y(dtype, n);
  std::vector<float> mean(rows), rstd(rows);
  for (size_t r = 0; r < rows; ++r) {
    double m = 0, v = 0;
    for (size_t k = 0; k < cols; ++k) m += x[r * cols + k];
    m /= static_cast<double>(cols);
    for (size_t k = 0; k < cols; ++k) v += (x[r * cols + k] - m) * (x[r * cols + k] - m);
    mean[r] = static_cast<float>(m);
    rstd[r] = static_cast<float>(1 / std::sqrt(v / static_cast<double>(cols) + 1e-5));
  }
  DeviceBuffer<float> device_mean(mean), device_rstd(rstd);
  const std::vector<float> before = random.normals(3 * c.cols, 1.0f);
  const auto part = [&](size_t k) {
    return std::vector<float>(before.begin() + static_cast<std::ptrdiff_t>(k * cols),
                              before.begin() + static_cast<std::ptrdiff_t>((k + 1) * cols));
  };
  DeviceBuffer<float> dgamma(part(0)), dbeta(part(1)), dx_sum(part(2));
  DeviceBuffer<uint8_t> workspace(kernels::layer_norm_backward_workspace(c.rows, c.cols, o.sum));

  LayerNormBackwardArgs args{.dtype = dtype,
                             .rows = c.rows,
                             .cols = c.cols,
                             .x = device_x.get(),
                             .gamma = device_gamma.get(),
                             .beta = o.output ? device_beta.get() : nullptr,
                             .mean = device_mean.get(),
                             .rstd = device_rstd.get(),
                             .dy = device_dy.get(),
                             .residual_gradient = o.residual ? device_residual.get() : nullptr,
                             .dx = device_dx.get(),
                             .y = o.output ? device_y.get() : nullptr,
                             .dgamma = dgamma.get(),
                             .dbeta = dbeta.get(),
                             .dx_sum = o.sum ? dx_sum.get() : nullptr,
                             .workspace = workspace.get()};
  CHECK_CUDA(launch(args, nullptr));
  const auto got_dx = device_dx.download(), got_y = device_y.download();
  const auto got_dgamma = dgamma.download(), got_dbeta = dbeta.download(), got_sum = dx_sum.download();

  // As the encoder layer calls it: dx is the residual stream's gradient, y takes the place of dy.
  if (o.in_place) {
    args.dx = const_cast<void*>(args.residual_gradient);
    if (o.output) args.y = device_dy.get();
  }
  dgamma.upload(part(0));
  dbeta.upload(part(1));
  dx_sum.upload(part(2));
  workspace.poison();
  CHECK_CUDA(launch(args, nullptr));
  const auto again_dx = o.in_place ? device_residual.download() : device_dx.download();
  const auto again_y = o.in_place && o.output ? device_dy.download() : device_y.download();

  std::vector<double> want_dx(n), want_y(n), sums(3 * cols), sizes(3 * cols), scale(n);
  for (size_t k = 0; k < 3 * cols; ++k) sums[k] = before[k];
  for (size_t r = 0; r < rows; ++r) {
    double mean_g = 0, mean_gx = 0;
    for (size_t k = 0; k < cols; ++k) {
      const size_t i = r * cols + k;
      const double xhat = (static_cast<double>(x[i]) - mean[r]) * rstd[r], g = static_cast<double>(dy[i]) * gamma[k];
      mean_g += g;
      mean_gx += g * xhat;
    }
    mean_g /= static_cast<double>(cols);
    mean_gx /= static_cast<double>(cols);
    for (size_t k = 0; k < cols; ++k) {
      const size_t i = r * cols + k;
      const double xhat = (static_cast<double>(x[i]) - mean[r]) * rstd[r], g = static_cast<double>(dy[i]) * gamma[k];
      want_dx[i] = rstd[r] * (g - mean_g - xhat * mean_gx) + (o.residual ? residual[i] : 0.0f);
      want_y[i] = xhat * gamma[k] + beta[k];
      scale[i] = rstd[r] * (std::abs(g) + std::abs(mean_g) + std::abs(xhat * mean_gx)) + std::abs(residual[i]);
      const double terms[3] = {dy[i] * xhat, dy[i], want_dx[i]};
      for (size_t t = 0; t < 3; ++t) {
        sums[t * cols + k] += terms[t];
        sizes[t * cols + k] += std::abs(terms[t]);
      }
    }
  }
  const std::string name =
      text("layer_norm_backward %s %zux%zu%s%s%s%s", name_of(dtype), rows, cols, o.residual ? " residual" : "",
           o.output ? " y" : "", o.sum ? " sum" : "", o.in_place ? " in place" : "");
  report.close(name + " dx", got_dx, want_dx,
               [&](size_t i) { return 1.01 * rounding(dtype) * std::abs(want_dx[i]) + 2e-6 * (1 + scale[i]); });
  if (o.output)
    report.close(name + " y", got_y, want_y,
                 [&](size_t i) { return 1.01 * rounding(dtype) * std::abs(want_y[i]) + 4e-6; });
  const auto check_sum = [&](const char* what, const std::vector<float>& got, size_t t) {
    const std::vector<double> want(sums.begin() + static_cast<std::ptrdiff_t>(t * cols),
                                   sums.begin() + static_cast<std::ptrdiff_t>((t + 1) * cols));
    report.close(name + what, got, want,
                 [&, t](size_t k) { return 3e-6 * (sizes[t * cols + k] + std::abs(want[k]) + 1); });
  };
  check_sum(" dgamma", got_dgamma, 0);
  check_sum(" dbeta", got_dbeta, 1);
  if (o.sum)
    check_sum(" dx_sum", got_sum, 2);
  else
    report.same(name + " dx_sum untouched", got_sum, part(2));
  report.equal(name + " twice", different(got_dx, again_dx) + (o.output ? different(got_y, again_y) : 0) +
                                    different(got_dgamma, dgamma.download()) + different(got_dbeta, dbeta.download()) +
                                    different(got_sum, dx_sum.download()));
}

}  // namespace

void layer_norm_checks(Random& random, Report& report) {
  int which = 0;
  for (const DType dtype : {DType::kBF16, DType::kF32})
    for (const cases::LayerNormCase& c : cases::layer_norm_cases()) {
      forward(c, dtype, random, report);
      // All options for the middle width, one after the other for the rest.
      const std::vector<Options> options{{true, true, true, true},    {true, true, false, true},
                                         {true, false, true, false},  {false, true, true, false},
                                         {true, false, false, true},  {false, false, false, false},
                                         {false, false, true, false}, {false, true, false, false}};
      if (c.cols == 1280 || c.cols == 320) {
        const cases::LayerNormCase small{c.rows / 3, c.cols};
        for (const Options& o : options) backward(small, dtype, o, random, report);
      }
      backward(c, dtype, options[static_cast<size_t>(which++) % 4], random, report);
    }
}

}  // namespace esm::checks
