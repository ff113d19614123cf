#include "ops/cross_entropy.h"

#include <cstring>
#include <vector>

#include "device/phase_clock.h"
#include "ops/cuda_halves.h"
#include "ops/dispatch.h"
#include "ops/linear.h"
#include "ops/parallel.h"
#include "ops/place.h"

namespace esm::ops {
namespace {

void check_count(const at::Tensor& count, int64_t rows) {
  ESM_CHECK(*data<int32_t>(count) == rows, "{} rows of {}: on the CPU all count", *data<int32_t>(count), rows);
}

struct RowBytes {
  std::byte* data;
  size_t bytes;  // of a row
};

RowBytes row_bytes(const at::Tensor& x) {
  ESM_CHECK(x.dim() == 2 && x.is_contiguous(), "a contiguous matrix is wanted");
  return {static_cast<std::byte*>(x.data_ptr()), static_cast<size_t>(x.size(1)) * x.element_size()};
}

}  // namespace

at::Tensor make_loss_sums(const Context& context) { return at::zeros({3}, options(context, at::kDouble)); }

LossSums read_loss_sums(const at::Tensor& sums) {
  const at::Tensor here = sums.cpu();
  const double* values = data<double>(here);
  return {values[0], static_cast<int64_t>(values[1]), static_cast<int64_t>(values[2])};
}

void cross_entropy(Workspace& ws, const CrossEntropyArgs& a) {
  if (on_cuda(ws.context(), "cross_entropy", {a.logits, a.bias, a.targets, a.count, a.sums, a.dlogits, a.dbias}))
    return cuda::cross_entropy(ws, a);
  const device::Phase phase(ws.context(), "scored rows and loss");
  const int64_t rows = a.logits.size(0), classes = a.logits.size(1);
  ESM_CHECK(a.targets.numel() == rows && classes == a.classes && a.bias.numel() == classes &&
                a.dbias.defined() == a.dlogits.defined(),
            "cross entropy of {} targets, {} x {} logits", a.targets.numel(), rows, classes);
  check_count(a.count, rows);
  std::vector<double> losses(rows);
  std::vector<uint8_t> correct(rows);
  with_element(a.dlogits.defined() ? a.dlogits : a.logits, [&](auto element) {
    using T = decltype(element);
    cpu::cross_entropy(rows, classes, data<float>(a.logits), data<float>(a.bias), data<uint8_t>(a.targets),
                       a.label_smoothing, losses.data(), correct.data(), data_or_null<T>(a.dlogits));
  });
  double loss = 0;
  int64_t n_correct = 0;
  for (int64_t r = 0; r < rows; ++r) {
    loss += losses[r];
    n_correct += correct[r];
  }
  double* sums = data<double>(a.sums);
  sums[0] += loss;
  sums[1] += static_cast<double>(rows);
  sums[2] += static_cast<double>(n_correct);
  if (a.dlogits.defined()) add_column_sums(ws, a.dlogits, a.dbias);
}

void expect_cross_entropy(Workspace& ws, int64_t rows, int64_t cols) {
  if (!ws.context().on_cuda()) return expect_column_sums(ws, rows, cols);
  ws.expect(Workspace::kPartials, cuda::cross_entropy_floats());
}

void gather_rows(const Context& context, const at::Tensor& from, const Rows& rows, const at::Tensor& to) {
  if (on_cuda(context, "gather_rows", {from, rows.index, rows.count, to}))
    return cuda::gather_rows(context, from, rows, to);
  const device::Phase phase(context, "scored rows and loss");
  const RowBytes source = row_bytes(from), target = row_bytes(to);
  const int32_t* index = data<int32_t>(rows.index);
  check_count(rows.count, rows.index.numel());
  parallel_ranges(rows.index.numel(), row_grain(from.size(1)), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      std::memcpy(target.data + i * target.bytes, source.data + index[i] * source.bytes, source.bytes);
  });
}

void scatter_rows(const Context& context, const at::Tensor& from, const Rows& rows, const at::Tensor& to) {
  if (on_cuda(context, "scatter_rows", {from, rows.index, rows.count, to}))
    return cuda::scatter_rows(context, from, rows, to);
  const device::Phase phase(context, "scored rows and loss");
  const RowBytes source = row_bytes(from), target = row_bytes(to);
  const int32_t* index = data<int32_t>(rows.index);
  check_count(rows.count, rows.index.numel());
  parallel_ranges(rows.index.numel(), row_grain(from.size(1)), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      std::memcpy(target.data + index[i] * target.bytes, source.data + i * source.bytes, source.bytes);
  });
}

}  // namespace esm::ops
