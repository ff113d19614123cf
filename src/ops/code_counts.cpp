#include "ops/code_counts.h"

#include "ops/cuda_halves.h"
#include "ops/dispatch.h"
#include "ops/place.h"

namespace esm::ops {
namespace {

/// Rows that count, times `cols`: [] int64, where the model works.
at::Tensor elements(const GemmOperand& x, const at::Tensor& like) {
  const int64_t rows = like.size(0), cols = like.size(1);
  if (!x.counted.defined()) return at::full({}, rows * cols, like.options().dtype(at::kLong));
  return x.counted.select(0, 0).to(at::kLong).clamp_max(rows).mul(cols);
}

/// Values of codes in a wider type; padding is 0.
void count_values(const GemmOperand& x, const at::Tensor& counts) {
  counts.select(0, 0).copy_(elements(x, x.codes).sub(x.codes.ne(0).sum()));
  if (x.format.grouping == precision::Grouping::kTensor)
    counts.select(0, 1).copy_(x.codes.abs().ge(x.scale.inverse.mul(x.scale.greatest)).sum());
  else
    counts.select(0, 1).zero_();
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
  if (on_cuda(context_, "count codes", {x.codes, counts}) && x.in_codes())
    cuda::count_codes(context_, x, counts);
  else
    count_values(x, counts);
  counts.select(0, 2).copy_(elements(x, x.codes));
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
