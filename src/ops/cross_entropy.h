// Masked-language loss of scored rows, and moving rows between the packed tokens and the head.
#pragma once
#include "ops/workspace.h"

namespace esm::ops {

/// Some rows of a matrix. On a CUDA device the tensors have a fixed capacity and `count` says how many rows there are;
/// on the CPU count = index.numel().
struct Rows {
  at::Tensor index;  // [N] int32, distinct
  at::Tensor count;  // [1] int32
};

/// to[i, :] = from[index[i], :]; rows of `to` from count on become 0.
void gather_rows(const Context& context, const at::Tensor& from, const Rows& rows, const at::Tensor& to);
/// to[index[i], :] = from[i, :] for i below count; other rows keep their content.
void scatter_rows(const Context& context, const at::Tensor& from, const Rows& rows, const at::Tensor& to);

/// Of a run of batches: sums over scored rows, [3] FP64 where the model is: losses, scored rows, rows whose highest
/// logit (the lowest id wins a tie) is the target.
at::Tensor make_loss_sums(const Context& context);
struct LossSums {
  double loss = 0;
  int64_t scored = 0;
  int64_t correct = 0;
};
/// Waits for the device.
LossSums read_loss_sums(const at::Tensor& sums);

/// logits [N, C] FP32 of which the first `classes` columns count, bias [classes] FP32, targets [N] uint8. For each row
/// i below count with p = softmax(logits + bias), smoothing e:
///   loss = -(1 - e) log p[target] - e/V sum over v of log p[v]
/// is added to `sums`. dlogits, if defined, [N, C] FP32 or BF16 (may be logits): gradient of the sum of losses, 0
/// elsewhere; dbias [classes] FP32 += its column sums. On the CPU C = classes, rows are computed in FP64 and summed in
/// order.
struct CrossEntropyArgs {
  at::Tensor logits, bias, targets, count;
  int64_t classes = 0;
  double label_smoothing = 0;
  at::Tensor sums;
  at::Tensor dlogits, dbias;
};
void cross_entropy(Workspace& ws, const CrossEntropyArgs& a);
/// Announces to `ws` what that will ask for.
void expect_cross_entropy(Workspace& ws, int64_t rows, int64_t cols);

}  // namespace esm::ops
