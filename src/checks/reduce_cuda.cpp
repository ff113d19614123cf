#include "kernels/reduce.h"

#include <limits>
#include <memory>

#include "checks/cases/reduce.h"
#include "checks/harness.h"
#include "kernels/cast.h"
#include "kernels/clip.h"
#include "kernels/copy.h"

namespace esm::checks {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

void column_sum(const cases::ColumnSumCase& c, DType dtype, Random& random, Report& report) {
  const size_t cols = static_cast<size_t>(c.cols);
  std::vector<float> x = random.normals(c.rows * c.cols, 1, 0.2f);
  const std::vector<float> before = random.normals(c.cols);
  Activations device(dtype, x);
  DeviceBuffer<float> sum(before);
  DeviceBuffer<uint8_t> workspace(kernels::column_sum_workspace(c.rows, c.cols));
  const kernels::ColumnSumArgs args{.dtype = dtype,
                                    .rows = c.rows,
                                    .cols = c.cols,
                                    .x = device.get(),
                                    .sum = sum.get(),
                                    .workspace = workspace.get()};
  CHECK_CUDA(launch(args, nullptr));
  std::vector<double> want(before.begin(), before.end()), sizes(cols);
  for (size_t i = 0; i < x.size(); ++i) {
    want[i % cols] += x[i];
    sizes[i % cols] += std::abs(x[i]);
  }
  const std::string name =
      text("column_sum %s %lldx%lld", name_of(dtype), static_cast<long long>(c.rows), static_cast<long long>(c.cols));
  const auto got = sum.download();
  report.close(name, got, want, [&](size_t k) { return 1.5e-6 * sizes[k] + 2e-7 * (1 + std::abs(want[k])); });
  sum.upload(before);
  workspace.poison();
  CHECK_CUDA(launch(args, nullptr));
  report.same(name + " twice", got, sum.download());
}

void sum_of_squares(const std::vector<int64_t>& sizes, Random& random, Report& report) {
  std::vector<std::unique_ptr<DeviceBuffer<float>>> buffers;
  DeviceBuffer<double> sum(1);
  DeviceBuffer<uint8_t> workspace(kernels::sum_of_squares_workspace());
  kernels::SumOfSquaresArgs args{
      .n_buffers = static_cast<int>(sizes.size()), .sum = sum.get(), .workspace = workspace.get()};
  double want = 0;
  for (size_t b = 0; b < sizes.size(); ++b) {
    const std::vector<float> x = random.normals(sizes[b], b == 0 ? 1e15f : 1.0f);  // squares beyond FP32
    for (const float value : x) want += static_cast<double>(value) * value;
    buffers.push_back(std::make_unique<DeviceBuffer<float>>(x));
    args.buffers[b] = buffers.back()->get();
    args.sizes[b] = sizes[b];
  }
  CHECK_CUDA(launch(args, nullptr));
  const double got = sum.download()[0];
  const std::string name = text("sum_of_squares of %zu buffers", sizes.size());
  report.close(name, {static_cast<float>(got / want - 1)}, {0.0}, [](size_t) { return 1e-12; });
  sum.poison();
  workspace.poison();
  CHECK_CUDA(launch(args, nullptr));
  report.same(name + " twice", std::vector<double>{got}, sum.download());
  for (const float bad : {kInfinity, std::nanf("")}) {
    CHECK_CUDA(cudaMemcpy(buffers[0]->get() + 3, &bad, sizeof bad, cudaMemcpyHostToDevice));
    CHECK_CUDA(launch(args, nullptr));
    report.equal(name + " not finite", std::isfinite(sum.download()[0]) ? 1 : 0);
  }
}

void first_nonfinite(Random& random, Report& report) {
  const int64_t sizes[] = {1'000'004, 64, 5'000'000};
  std::vector<std::unique_ptr<DeviceBuffer<float>>> buffers;
  DeviceBuffer<int32_t> wanted(std::vector<int32_t>{1});
  DeviceBuffer<uint64_t> first(std::vector<uint64_t>{kernels::kAllFinite});
  kernels::FirstNonfiniteArgs args{.wanted = wanted.get(), .n_buffers = 3, .first_buffer = 7, .first = first.get()};
  for (int b = 0; b < 3; ++b) {
    buffers.push_back(std::make_unique<DeviceBuffer<float>>(random.normals(sizes[b], 1e37f)));
    args.buffers[b] = buffers.back()->get();
    args.sizes[b] = sizes[b];
  }
  CHECK_CUDA(launch(args, nullptr));
  report.equal("first_nonfinite of finite values", first.download()[0] != kernels::kAllFinite);
  const auto put = [&](int b, int64_t at, float value) {
    CHECK_CUDA(cudaMemcpy(buffers[static_cast<size_t>(b)]->get() + at, &value, 4, cudaMemcpyHostToDevice));
  };
  const auto expect = [&](const char* name, uint64_t place) {
    first.upload({kernels::kAllFinite});
    CHECK_CUDA(launch(args, nullptr));
    report.equal(text("first_nonfinite: %s", name), first.download()[0] != place);
  };
  const auto place = [](uint64_t buffer, uint64_t at) { return buffer << kernels::kBufferShift | at; };
  put(2, 4'999'999, kInfinity);
  expect("the last element", place(9, 4'999'999));
  put(2, 17, std::nanf(""));
  put(2, 19, -kInfinity);
  expect("the lowest of three", place(9, 17));
  put(0, 1'000'003, -kInfinity);
  expect("an earlier buffer", place(7, 1'000'003));
  put(0, 0, std::nanf(""));
  expect("the first element", place(7, 0));
  wanted.upload({0});
  expect("not wanted", kernels::kAllFinite);
}

void cast_and_fill(Random& random, Report& report) {
  for (const int64_t n : {int64_t{8}, int64_t{100'008}}) {
    std::vector<float> x = random.normals(n);
    x[0] = 1.00390625f;  // a tie that goes down to even
    x[1] = 1.01171875f;  // a tie that goes up to even
    x[2] = kInfinity;
    x[3] = -0.0f;
    x[4] = 1e-40f;
    std::vector<float> rounded = x;
    Activations::round(DType::kBF16, rounded);
    DeviceBuffer<float> wide(x), back(static_cast<size_t>(n));
    Activations narrow(DType::kBF16, static_cast<size_t>(n));
    CHECK_CUDA(launch(
        kernels::CastArgs{
            .from_dtype = DType::kF32, .to_dtype = DType::kBF16, .n = n, .from = wide.get(), .to = narrow.get()},
        nullptr));
    report.same(text("cast fp32->bf16 of %lld", static_cast<long long>(n)), narrow.download(), rounded);
    CHECK_CUDA(launch(
        kernels::CastArgs{
            .from_dtype = DType::kBF16, .to_dtype = DType::kF32, .n = n, .from = narrow.get(), .to = back.get()},
        nullptr));
    report.same(text("cast bf16->fp32 of %lld", static_cast<long long>(n)), back.download(), rounded);
  }
}

void copy(Random& random, Report& report) {
  for (const int64_t n : {int64_t{4}, int64_t{4092}, int64_t{4096}, int64_t{1'000'004}}) {
    const std::vector<float> x = random.normals(n);
    DeviceBuffer<float> from(x), to(static_cast<size_t>(n));
    CHECK_CUDA(launch(kernels::CopyArgs{.bytes = 4 * n, .from = from.get(), .to = to.get()}, nullptr));
    report.same(text("copy of %lld bytes", static_cast<long long>(4 * n)), to.download(), x);
  }
}

void clip(Report& report) {
  const double nan = std::nan("");
  const struct {
    const char* name;
    double squares[2];
    kernels::LossSums losses;
    double max_norm;
  } inputs[] = {{"below the limit", {3, 1}, {250, 100, 7}, 1},
                {"above the limit", {3e6, 1e6}, {250, 100, 7}, 1},
                {"no limit", {3e6, 1e6}, {250, 100, 7}, 0},
                {"nothing scored", {0, 0}, {0, 0, 0}, 1},
                {"norm not finite", {nan, 1}, {250, 100, 7}, 1},
                {"loss not finite", {3, 1}, {nan, 100, 7}, 1},
                {"norm infinite", {std::numeric_limits<double>::infinity(), 1}, {250, 100, 7}, 1}};
  for (const auto& in : inputs) {
    DeviceBuffer<double> squares(std::vector<double>{in.squares[0], in.squares[1]});
    DeviceBuffer<kernels::LossSums> losses(std::vector<kernels::LossSums>{in.losses});
    DeviceBuffer<kernels::ClipResult> result(1);
    CHECK_CUDA(launch(kernels::ClipArgs{.n_sums = 2,
                                        .sums_of_squares = squares.get(),
                                        .losses = losses.get(),
                                        .max_norm = in.max_norm,
                                        .result = result.get()},
                      nullptr));
    const kernels::ClipResult got = result.download()[0];
    const double norm = std::sqrt(in.squares[0] + in.squares[1]) / in.losses.scored;
    const double loss = in.losses.loss / in.losses.scored;
    const bool skip = in.losses.scored == 0 || !std::isfinite(norm) || !std::isfinite(loss);
    const double factor = in.max_norm > 0 ? std::min(1.0, in.max_norm / (norm + 1e-6)) : 1.0;
    size_t wrong = got.skip != (skip ? 1 : 0);
    if (skip)
      wrong += got.grad_scale != 0;
    else
      wrong += (std::abs(got.grad_norm / norm - 1) > 1e-12) + (got.losses.loss != in.losses.loss) +
               (std::abs(got.grad_scale * in.losses.scored / factor - 1) > 1e-6);
    report.equal(text("clip: %s", in.name), wrong);
  }
}

}  // namespace

void reduce_checks(Random& random, Report& report) {
  for (const DType dtype : {DType::kBF16, DType::kF32})
    for (const cases::ColumnSumCase& c : cases::column_sum_cases()) column_sum(c, dtype, random, report);
  for (const std::vector<int64_t>& sizes : cases::sum_of_squares_cases()) sum_of_squares(sizes, random, report);
  first_nonfinite(random, report);
  cast_and_fill(random, report);
  copy(random, report);
  clip(report);
}

}  // namespace esm::checks
