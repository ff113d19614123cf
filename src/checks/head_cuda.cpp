#include <algorithm>
#include <numeric>

#include "checks/cases/head.h"
#include "checks/harness.h"
#include "kernels/cross_entropy.h"
#include "kernels/rows.h"

namespace esm::checks {
namespace {

void rows(const cases::RowsCase& c, DType dtype, Random& random, Report& report) {
  const size_t cols = static_cast<size_t>(c.cols), total = static_cast<size_t>(c.total_rows),
               capacity = static_cast<size_t>(c.capacity), count = static_cast<size_t>(c.count);
  std::vector<int32_t> all(total);
  std::iota(all.begin(), all.end(), 0);
  for (size_t i = total; i > 1; --i)
    std::swap(all[i - 1], all[static_cast<size_t>(random.below(static_cast<int64_t>(i)))]);
  std::vector<int32_t> index(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(capacity));
  std::sort(index.begin(), index.begin() + static_cast<std::ptrdiff_t>(count));
  for (size_t i = count; i < capacity; ++i) index[i] = -1000000;  // must not be used
  DeviceBuffer<int32_t> device_index(index), device_count(std::vector<int32_t>{static_cast<int32_t>(count)});

  std::vector<float> x = random.normals(c.total_rows * c.cols);
  Activations from(dtype, x), gathered(dtype, capacity * cols), scattered(dtype, total * cols);
  const int64_t row_bytes = c.cols * size_of(dtype);
  CHECK_CUDA(launch(kernels::GatherRowsArgs{.capacity = c.capacity,
                                            .row_bytes = row_bytes,
                                            .rows = device_index.get(),
                                            .count = device_count.get(),
                                            .from = from.get(),
                                            .to = gathered.get()},
                    nullptr));
  std::vector<float> want(capacity * cols), want_back(total * cols);
  for (size_t i = 0; i < count; ++i)
    for (size_t k = 0; k < cols; ++k)
      want[i * cols + k] = want_back[static_cast<size_t>(index[i]) * cols + k] =
          x[static_cast<size_t>(index[i]) * cols + k];
  const std::string name = text("rows %s %zu of %zu, %zu columns", name_of(dtype), count, total, cols);
  report.same(name + " gather", gathered.download(), want);
  CHECK_CUDA(launch(kernels::ScatterRowsArgs{.capacity = c.capacity,
                                             .total_rows = c.total_rows,
                                             .row_bytes = row_bytes,
                                             .rows = device_index.get(),
                                             .count = device_count.get(),
                                             .from = gathered.get(),
                                             .to = scattered.get()},
                    nullptr));
  report.same(name + " scatter", scattered.download(), want_back);
}

void cross_entropy(const cases::CrossEntropyCase& c, DType logits_dtype, DType dlogits_dtype, bool with_bias,
                   Random& random, Report& report) {
  const size_t capacity = static_cast<size_t>(c.capacity), scored = static_cast<size_t>(c.scored),
               classes = static_cast<size_t>(c.classes);
  std::vector<float> logits = random.normals(c.capacity * 64, c.scale), bias = random.normals(c.classes);
  std::vector<uint8_t> targets;
  for (size_t i = 0; i < capacity; ++i) targets.push_back(static_cast<uint8_t>(random.below(c.classes)));
  for (size_t i = 0; i + 7 < scored; i += 7) {  // ties for the highest logit, and targets that win
    logits[i * 64] = logits[i * 64 + 1] = 5 * c.scale;
    logits[i * 64 + 64 + targets[i + 1]] += 4 * c.scale;
  }
  Activations::round(logits_dtype, logits);
  std::vector<float> padded = logits;
  for (size_t i = 0; i < capacity * 64; ++i)
    if (i % 64 >= classes || i / 64 >= scored) padded[i] = std::nanf("");
  if (with_bias && c.label_smoothing == 0)
    for (float& b : bias) b = std::round(b);  // keeps the ties
  Activations device_logits(logits_dtype, capacity * 64), dlogits(dlogits_dtype, capacity * 64);
  device_logits.upload(padded);
  DeviceBuffer<float> device_bias(bias);
  DeviceBuffer<uint8_t> device_targets(targets);
  DeviceBuffer<int32_t> n_scored(std::vector<int32_t>{static_cast<int32_t>(scored)});
  const kernels::LossSums sums_before{10.5, 20, 3};
  DeviceBuffer<kernels::LossSums> sums(std::vector<kernels::LossSums>{sums_before});
  const std::vector<float> dbias_before = random.normals(c.classes);
  DeviceBuffer<float> dbias(dbias_before);
  DeviceBuffer<uint8_t> workspace(kernels::cross_entropy_workspace());
  kernels::CrossEntropyArgs args{.logits_dtype = logits_dtype,
                                 .dlogits_dtype = dlogits_dtype,
                                 .capacity = c.capacity,
                                 .classes = c.classes,
                                 .logits = device_logits.get(),
                                 .bias = with_bias ? device_bias.get() : nullptr,
                                 .targets = device_targets.get(),
                                 .n_scored = n_scored.get(),
                                 .label_smoothing = c.label_smoothing,
                                 .sums = sums.get(),
                                 .dlogits = dlogits.get(),
                                 .dbias = dbias.get(),
                                 .workspace = workspace.get()};
  CHECK_CUDA(launch(args, nullptr));

  std::vector<double> want(capacity * 64), dbias_want(dbias_before.begin(), dbias_before.end()), dbias_size(classes);
  double loss = sums_before.loss, correct = sums_before.correct, loss_size = 0;
  const double e = c.label_smoothing, v = static_cast<double>(classes);
  for (size_t i = 0; i < scored; ++i) {
    std::vector<double> z(classes);
    for (size_t k = 0; k < classes; ++k) {
      // FP32 as in the kernel, so that ties are the same
      z[k] = with_bias ? logits[i * 64 + k] + bias[k] : logits[i * 64 + k];
    }
    const size_t best = static_cast<size_t>(std::max_element(z.begin(), z.end()) - z.begin());
    double sum = 0, total = 0;
    for (const double value : z) {
      sum += std::exp(value - z[best]);
      total += value;
    }
    const double log_sum = z[best] + std::log(sum);
    const double row_loss = (1 - e) * (log_sum - z[targets[i]]) + e / v * (v * log_sum - total);
    loss += row_loss;
    loss_size += std::abs(row_loss) + std::abs(z[best] - z[targets[i]]) + 1;
    correct += best == targets[i];
    for (size_t k = 0; k < classes; ++k) {
      const double d = std::exp(z[k] - log_sum) - e / v - (k == targets[i] ? 1 - e : 0);
      want[i * 64 + k] = d;
      dbias_want[k] += d;
      dbias_size[k] += std::abs(d);
    }
  }
  const std::string name =
      text("cross_entropy %s->%s %zu of %zu, %d classes%s%s", name_of(logits_dtype), name_of(dlogits_dtype), scored,
           capacity, c.classes, with_bias ? " bias" : "", c.label_smoothing > 0 ? " smoothing" : "");
  const auto got = dlogits.download();
  report.close(name + " dlogits", got, want, [&](size_t i) {
    return i / 64 >= scored || i % 64 >= classes ? 0 : 1.01 * rounding(dlogits_dtype) * std::abs(want[i]) + 1e-6;
  });
  const kernels::LossSums result = sums.download()[0];
  report.close(name + " loss", {static_cast<float>(result.loss - loss)}, {0.0},
               [&](size_t) { return 3e-7 * loss_size + 1e-9; });
  report.equal(name + " counts",
               (result.correct != correct) + (result.scored != sums_before.scored + static_cast<double>(c.scored)));
  const auto got_dbias = dbias.download();
  report.close(name + " dbias", got_dbias, dbias_want,
               [&](size_t k) { return 2e-6 * (dbias_size[k] + 1) + 2e-7 * std::abs(dbias_want[k]); });

  // Again: bit-equal; then without gradients: the same sums.
  sums.upload({sums_before});
  dbias.upload(dbias_before);
  workspace.poison();
  if (logits_dtype == dlogits_dtype) args.dlogits = device_logits.get();
  CHECK_CUDA(launch(args, nullptr));
  const auto again = logits_dtype == dlogits_dtype ? device_logits.download() : dlogits.download();
  report.equal(name + " twice", different(got, again) + different(got_dbias, dbias.download()) +
                                    (std::memcmp(&sums.download()[0], &result, sizeof result) != 0));
  if (logits_dtype == dlogits_dtype) device_logits.upload(padded);
  sums.upload({sums_before});
  args.dlogits = nullptr;
  args.dbias = nullptr;
  CHECK_CUDA(launch(args, nullptr));
  report.equal(name + " without gradients", std::memcmp(&sums.download()[0], &result, sizeof result) != 0);
}

}  // namespace

void head_checks(Random& random, Report& report) {
  for (const DType dtype : {DType::kBF16, DType::kF32})
    for (const cases::RowsCase& c : cases::rows_cases()) rows(c, dtype, random, report);
  for (const cases::CrossEntropyCase& c : cases::cross_entropy_cases())
    for (const bool with_bias : {false, true}) {
      cross_entropy(c, DType::kF32, DType::kBF16, with_bias, random, report);
      cross_entropy(c, DType::kBF16, DType::kBF16, with_bias, random, report);
      cross_entropy(c, DType::kF32, DType::kF32, with_bias, random, report);
    }
}

}  // namespace esm::checks
