#include "ops/cross_entropy.h"

#include <cstring>
#include <vector>

#include "ops/dispatch.h"
#include "ops/parallel.h"

namespace esm::ops {

CrossEntropyResult cross_entropy(const CrossEntropyArgs& a) {
  require_cpu("cross_entropy", {a.logits, a.dlogits});
  const int64_t rows = a.logits.size(0), classes = a.logits.size(1);
  ESM_CHECK(static_cast<int64_t>(a.targets.size()) == rows, "{} targets for {} rows", a.targets.size(), rows);
  std::vector<double> losses(rows);
  std::vector<uint8_t> correct(rows);
  with_element(a.dlogits.defined() ? a.dlogits : a.logits, [&](auto element) {
    using T = decltype(element);
    cpu::cross_entropy(rows, classes, data<float>(a.logits), a.targets.data(), a.label_smoothing, losses.data(),
                       correct.data(), data_or_null<T>(a.dlogits));
  });
  CrossEntropyResult result;
  for (int64_t r = 0; r < rows; ++r) {
    result.loss_sum += losses[r];
    result.n_correct += correct[r];
  }
  return result;
}

namespace {

struct Rows {
  std::byte* data;
  size_t bytes;  // of a row
};

Rows rows_of(const at::Tensor& x) {
  ESM_CHECK(x.dim() == 2 && x.is_contiguous(), "a contiguous matrix is wanted");
  return {static_cast<std::byte*>(x.data_ptr()), static_cast<size_t>(x.size(1)) * x.element_size()};
}

}  // namespace

void gather_rows(const at::Tensor& from, std::span<const int32_t> rows, const at::Tensor& to) {
  require_cpu("gather_rows", {from, to});
  const Rows source = rows_of(from), target = rows_of(to);
  parallel_ranges(static_cast<int64_t>(rows.size()), row_grain(from.size(1)), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      std::memcpy(target.data + i * target.bytes, source.data + rows[i] * source.bytes, source.bytes);
  });
}

void scatter_rows(const at::Tensor& from, std::span<const int32_t> rows, const at::Tensor& to) {
  require_cpu("scatter_rows", {from, to});
  const Rows source = rows_of(from), target = rows_of(to);
  parallel_ranges(static_cast<int64_t>(rows.size()), row_grain(from.size(1)), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      std::memcpy(target.data + rows[i] * target.bytes, source.data + i * source.bytes, source.bytes);
  });
}

}  // namespace esm::ops
