#include "kernels/layer_norm_fp8.h"

#include "checks/cases/quantize.h"
#include "checks/fp8_harness.h"
#include "kernels/layer_norm.h"
#include "kernels/quantize.h"

// The kernels of BF16 (held against FP64 by the family "layer_norm"), then a cast on the host. The forward pass has
// their arithmetic: equal bytes. The backward pass adds up rows in another order, so dx is held against FP64.
namespace esm::checks {
namespace {

constexpr float kEps = 1e-5f;

struct Inputs {
  std::vector<float> x, dy, residual, gamma, beta;
};

struct Backward {  // in FP64
  std::vector<double> dx, size, sums, sum_sizes;
};

Backward reference(const Inputs& in, const std::vector<float>& mean, const std::vector<float>& rstd, int64_t counted,
                   bool residual) {
  const size_t cols = in.gamma.size();
  Backward out{std::vector<double>(in.x.size()), std::vector<double>(in.x.size()), std::vector<double>(3 * cols),
               std::vector<double>(3 * cols)};
  for (size_t r = 0; r < static_cast<size_t>(counted); ++r) {
    double mean_g = 0, mean_gx = 0;
    const auto xhat = [&](size_t k) { return (static_cast<double>(in.x[r * cols + k]) - mean[r]) * rstd[r]; };
    const auto g = [&](size_t k) { return static_cast<double>(in.dy[r * cols + k]) * in.gamma[k]; };
    for (size_t k = 0; k < cols; ++k) {
      mean_g += g(k) / static_cast<double>(cols);
      mean_gx += g(k) * xhat(k) / static_cast<double>(cols);
    }
    for (size_t k = 0; k < cols; ++k) {
      const size_t i = r * cols + k;
      const double before = residual ? in.residual[i] : 0.0f;
      out.dx[i] = rstd[r] * (g(k) - mean_g - xhat(k) * mean_gx) + before;
      out.size[i] = rstd[r] * (std::abs(g(k)) + std::abs(mean_g) + std::abs(xhat(k) * mean_gx)) + std::abs(before);
      const double terms[3] = {in.dy[i] * xhat(k), in.dy[i], out.dx[i]};
      for (size_t t = 0; t < 3; ++t) {
        out.sums[t * cols + k] += terms[t];
        out.sum_sizes[t * cols + k] += std::abs(terms[t]);
      }
    }
  }
  return out;
}

struct Options {
  bool residual, transposed, output, in_place;
};

void check(const cases::QuantizeCase& c, DType gradient, const Options& o, Random& random, Report& report) {
  const int64_t n = c.rows * c.cols, counted = counted_of(c.rows, c.counted);
  const size_t rows = static_cast<size_t>(c.rows), cols = static_cast<size_t>(c.cols);
  const float y_scale = 32.0f, dx_scale = gradient == DType::kF8E4M3 ? 16.0f : 512.0f;
  Inputs in{random.normals(n, 1.5f, 0.7f), random.normals(n, 0.5f, 0.1f), random.normals(n, 0.8f),
            random.normals(c.cols, 0.3f, 1.0f), random.normals(c.cols, 0.2f)};
  const Activations x(DType::kBF16, in.x), dy(DType::kBF16, in.dy), residual(DType::kBF16, in.residual),
      gamma(DType::kBF16, in.gamma), beta(DType::kBF16, in.beta), y(DType::kBF16, in.x.size());
  Activations dx(DType::kBF16, in.x.size());
  const DeviceBuffer<float> want_mean(rows), want_rstd(rows), mean(rows), rstd(rows);
  CHECK_CUDA(launch(kernels::LayerNormArgs{.rows = c.rows,
                                           .cols = c.cols,
                                           .x = x.get(),
                                           .gamma = gamma.get(),
                                           .beta = beta.get(),
                                           .eps = kEps,
                                           .y = y.get(),
                                           .mean = want_mean.get(),
                                           .rstd = want_rstd.get()},
                    nullptr));
  const Fp8Matrix want_y = fp8_matrix(y.download(), c.rows, c.cols, counted, DType::kF8E4M3, y_scale);

  const RowCount count(c.counted);
  Fp8Buffers y8(DType::kF8E4M3, n, y_scale), dx8(gradient, n, dx_scale);
  std::string name =
      text("layer_norm_fp8 %s %zux%zu%s%s%s%s", name_of_fp8(gradient), rows, cols, o.residual ? " residual" : "",
           o.transposed ? " dx^T" : "", o.output ? " y^T" : "", o.in_place ? " in place" : "");
  if (c.counted >= 0) name += text(" of %lld rows", static_cast<long long>(c.counted));
  kernels::LayerNormFp8Args forward{.rows = c.rows,
                                    .cols = c.cols,
                                    .x = x.get(),
                                    .gamma = gamma.get(),
                                    .beta = beta.get(),
                                    .eps = kEps,
                                    .row_count = count.get(),
                                    .y = y8.out(true, false),
                                    .mean = mean.get(),
                                    .rstd = rstd.get()};
  CHECK_CUDA(launch(forward, nullptr));
  report.same(name + " y", y8.rows(), want_y.rows);
  report.same(name + " y amax", y8.amax(), {want_y.amax});
  y8.reset();
  forward.y = y8.out(false, false);
  CHECK_CUDA(launch(forward, nullptr));
  report.same(name + " y measured", y8.amax(), {want_y.amax});
  const auto counted_only = [&](const DeviceBuffer<float>& values) {
    std::vector<float> host = values.download();
    host.resize(static_cast<size_t>(counted));
    return host;
  };
  const std::vector<float> means = counted_only(mean), rstds = counted_only(rstd);
  report.same(name + " mean", means, counted_only(want_mean));
  report.same(name + " rstd", rstds, counted_only(want_rstd));

  const std::vector<float> before = random.normals(3 * c.cols);
  const auto part = [&](const auto& all, size_t k) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(k * cols);
    return std::vector(begin, begin + static_cast<std::ptrdiff_t>(cols));
  };
  DeviceBuffer<float> dgamma(part(before, 0)), dbeta(part(before, 1)), dx_sum(part(before, 2));
  DeviceBuffer<uint8_t> workspace(kernels::layer_norm_fp8_backward_workspace(c.rows, c.cols));
  kernels::LayerNormFp8BackwardArgs args{.rows = c.rows,
                                         .cols = c.cols,
                                         .x = x.get(),
                                         .gamma = gamma.get(),
                                         .beta = beta.get(),
                                         .mean = mean.get(),
                                         .rstd = rstd.get(),
                                         .dy = dy.get(),
                                         .residual_gradient = o.residual ? residual.get() : nullptr,
                                         .row_count = count.get(),
                                         .dx = dx.get(),
                                         .dx8 = dx8.out(true, o.transposed),
                                         .y8 = o.output ? y8.out(false, true) : kernels::Fp8Out{},
                                         .dgamma = dgamma.get(),
                                         .dbeta = dbeta.get(),
                                         .dx_sum = dx_sum.get(),
                                         .workspace = workspace.get()};
  y8.reset();
  CHECK_CUDA(launch(args, nullptr));

  const Backward want = reference(in, means, rstds, counted, o.residual);
  const std::vector<float> got = dx.download();
  report.close(name + " dx", got, want.dx,
               [&](size_t i) { return 1.01 * 0x1p-8 * std::abs(want.dx[i]) + 2e-6 * (1 + want.size[i]); });
  // The bytes are those of what is in dx.
  const Fp8Matrix want_dx = fp8_matrix(got, c.rows, c.cols, counted, gradient, dx_scale);
  report.same(name + " dx8", dx8.rows(), want_dx.rows);
  if (o.transposed) report.same(name + " dx8 transposed", dx8.transposed(), want_dx.transposed);
  report.same(name + " dx8 amax", dx8.amax(), {want_dx.amax});
  if (o.output) {
    report.same(name + " y8 transposed", y8.transposed(), want_y.transposed);
    report.same(name + " y8 amax", y8.amax(), {want_y.amax});
  }
  const std::vector<float> sums[3] = {dgamma.download(), dbeta.download(), dx_sum.download()};
  const char* names[3] = {" dgamma", " dbeta", " dx_sum"};
  for (size_t t = 0; t < 3; ++t) {
    std::vector<double> total = part(want.sums, t);
    const std::vector<double> sizes = part(want.sum_sizes, t);
    for (size_t k = 0; k < cols; ++k) total[k] += before[t * cols + k];
    report.close(name + names[t], sums[t], total, [&](size_t k) { return 3e-6 * (sizes[k] + std::abs(total[k]) + 1); });
  }

  dgamma.upload(part(before, 0));
  dbeta.upload(part(before, 1));
  dx_sum.upload(part(before, 2));
  workspace.poison();
  dx8.reset();
  if (o.in_place) args.dx = o.residual ? residual.get() : dy.get();
  CHECK_CUDA(launch(args, nullptr));
  const Activations& again = !o.in_place ? dx : o.residual ? residual : dy;
  report.equal(name + " twice", different(got, again.download()) + different(sums[0], dgamma.download()) +
                                    different(sums[1], dbeta.download()) + different(sums[2], dx_sum.download()));
  report.same(name + " dx8 twice", dx8.rows(), want_dx.rows);
}

}  // namespace

void layer_norm_fp8_checks(Random& random, Report& report) {
  int which = 0;
  const std::vector<Options> options{
      {true, true, true, true}, {false, true, true, true}, {true, true, false, false}, {true, false, true, false}};
  for (const cases::QuantizeCase& c : cases::quantize_cases()) {
    if (c.cols == 1280)
      for (const Options& o : options) check(c, DType::kF8E5M2, o, random, report);
    check(c, which % 3 == 2 ? DType::kF8E4M3 : DType::kF8E5M2, options[static_cast<size_t>(which) % 4], random, report);
    ++which;
  }
  // Several groups of rows a block.
  check({9504, 2560, 9500}, DType::kF8E5M2, options[0], random, report);
  check({4512, 5120, -1}, DType::kF8E5M2, options[0], random, report);
  check({24992, 640, 24000}, DType::kF8E5M2, options[0], random, report);
  check({40000, 320, -1}, DType::kF8E4M3, options[2], random, report);
  check({40000, 320, -1}, DType::kF8E5M2, options[3], random, report);
  check({40000, 48, 39000}, DType::kF8E5M2, {true, false, false, false}, random, report);
}

}  // namespace esm::checks
