#include "ops/code_counts.h"

#include "ops/cuda_halves.h"
#include "ops/dispatch.h"
#include "ops/place.h"

namespace esm::ops {
namespace {

/// Rows that count: [] int64, where the model works.
at::Tensor rows_of(const GemmOperand& x) {
  const int64_t rows = x.codes.size(0);
  if (!x.counted.defined()) return at::full({}, rows, x.codes.options().dtype(at::kLong));
  return x.counted.select(0, 0).to(at::kLong).clamp_max(rows);
}

int64_t elements_of_row(const GemmOperand& x) {
  return x.codes.size(1) * (x.in_codes() && x.format.format == precision::Format::kE2M1 ? 2 : 1);
}

/// Rows of zeros throughout, padding too. (-0 is a code of its own: a row of values that were lost has some.)
at::Tensor rows_of_zeros(const GemmOperand& x) {
  return x.in_codes() ? x.codes.amax(1).eq(0).sum() : x.codes.ne(0).any(1).logical_not().sum();
}

/// Values of codes in a wider type; padding is 0.
void count_values(const GemmOperand& x, const at::Tensor& counts) {
  counts.select(0, 0).copy_(rows_of(x).mul(x.codes.size(1)).sub(x.codes.ne(0).sum()));
  if (x.format.grouping == precision::Grouping::kTensor)
    counts.select(0, 1).copy_(x.codes.abs().ge(x.scale.inverse.mul(x.scale.greatest)).sum());
  else
    counts.select(0, 1).zero_();
}

/// Pairs of FP4 codes: +-0 and +-6 in either half.
void count_pairs(const GemmOperand& x, const at::Tensor& counts) {
  const auto both_halves = [&](int64_t low) {
    return x.codes.bitwise_and(0x07).eq(low).sum().add(x.codes.bitwise_and(0x70).eq(low << 4).sum());
  };
  counts.select(0, 0).copy_(rows_of(x).mul(elements_of_row(x)).sub(both_halves(0).neg().add(x.codes.numel() * 2)));
  counts.select(0, 1).copy_(both_halves(7));
}

}  // namespace

int64_t CodeCounts::add(std::string name) {
  ESM_CHECK(!counts_.defined(), "a tensor to be counted is declared late: {}", name);
  names_.push_back(std::move(name));
  return std::ssize(names_) - 1;
}

void CodeCounts::allocate() { counts_ = at::zeros({std::ssize(names_), 3}, options(context_, at::kLong)); }

void CodeCounts::count(const GemmOperand& x, int64_t index) const {
  if (!watching_ || index < 0) return;
  const at::Tensor counts = counts_.select(0, index);
  const bool by_kernel = on_cuda(context_, "count codes", {x.codes, counts}) && x.in_codes();
  if (x.in_codes() && x.format.format == precision::Format::kE2M1)
    count_pairs(x, counts);
  else if (by_kernel)
    cuda::count_codes(context_, x, counts);
  else
    count_values(x, counts);
  const at::Tensor rows = rows_of(x), padding = rows.neg().add(x.codes.size(0));
  const at::Tensor empty = rows_of_zeros(x).sub(padding).mul(elements_of_row(x));
  counts.select(0, 0).sub_(empty);
  counts.select(0, 2).copy_(rows.mul(elements_of_row(x)).sub(empty));
}

at::Tensor moments(const Context& context, const at::Tensor& x, const at::Tensor& counted) {
  const at::Tensor result = at::empty({2}, options(context, at::kDouble));
  if (on_cuda(context, "moments", {x, counted})) {
    cuda::moments(context, x, counted, result);
    return result;
  }
  const int64_t rows = counted.defined() ? *data<int32_t>(counted) : x.size(0);
  const at::Tensor wide = x.narrow(0, 0, rows).to(at::kDouble);
  result.select(0, 0).copy_(wide.sum());
  result.select(0, 1).copy_(wide.square().sum());
  return result;
}

}  // namespace esm::ops
