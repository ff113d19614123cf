#include "ops/linear.h"

#include "base/error.h"
#include "support/compare.h"
#include "support/random_tensor.h"
#include "support/torch.h"

namespace esm::test {
namespace {

at::Tensor wide(const at::Tensor& x) { return x.to(at::kDouble); }
DType dtype_of(at::ScalarType type) { return type == at::kFloat ? DType::kF32 : DType::kBF16; }

}  // namespace

TEST_CASE("linear: forward with bias and residual, dgrad, wgrad") {
  const auto type = GENERATE(at::kFloat, at::kBFloat16);
  const int64_t rows = GENERATE(1, 300), k = 40, n = 56;
  ops::Workspace ws(Context{.threads = 2});
  const at::Tensor x = random_tensor(1, {rows, k}, type), w = random_tensor(2, {n, k}, type);
  const at::Tensor b = random_tensor(3, {n}, type), residual = random_tensor(4, {rows, n}, type);
  const at::Tensor y = at::empty({rows, n}, type);
  const Tolerance tolerance = operation_tolerance(dtype_of(type), k);
  const at::Tensor product = wide(x).matmul(wide(w).t());

  ops::linear(ws, {.x = x, .weight = w, .bias = b, .residual = {}, .y = y});
  check_close("bias", values(y), values(product.add(wide(b))), tolerance);
  ops::linear(ws, {.x = x, .weight = w, .bias = b, .residual = residual, .y = y});
  check_close("residual", values(y), values(product.add(wide(b)).add(wide(residual))), tolerance);
  ops::linear(ws, {.x = x, .weight = w, .bias = {}, .residual = {}, .y = y});
  check_close("plain", values(y), values(product), tolerance);
  const at::Tensor in_place = residual.clone();
  ops::linear(ws, {.x = x, .weight = w, .bias = b, .residual = in_place, .y = in_place});
  check_close("in place", values(in_place), values(product.add(wide(b)).add(wide(residual))), tolerance);
  const at::Tensor logits = at::empty({rows, n}, at::kFloat);
  ops::linear(ws, {.x = x, .weight = w, .bias = b, .residual = {}, .y = logits});
  check_close("FP32 result", values(logits), values(product.add(wide(b))), operation_tolerance(DType::kF32, k));

  const at::Tensor dy = random_tensor(5, {rows, n}, type), dx = at::empty({rows, k}, type);
  ops::linear_dgrad(ws, {.dy = dy, .weight = w, .dx = dx});
  check_close("dx", values(dx), values(wide(dy).matmul(wide(w))), operation_tolerance(dtype_of(type), n));
  const at::Tensor dw = random_tensor(6, {n, k}), db = random_tensor(7, {n});
  const at::Tensor dw0 = wide(dw), db0 = wide(db);
  ops::linear_wgrad(ws, {.dy = dy, .x = x, .dweight = dw});
  ops::add_column_sums(ws, dy, db);
  const Tolerance sums = operation_tolerance(DType::kF32, rows);
  check_close("dw", values(dw), values(dw0.add(wide(dy).t().matmul(wide(x)))), sums);
  dw.fill_(std::nan(""));
  ops::linear_wgrad(ws, {.dy = dy, .x = x, .dweight = dw, .accumulate = false});
  check_close("dw alone", values(dw), values(wide(dy).t().matmul(wide(x))), sums);
  check_close("db", values(db), values(db0.add(wide(dy).sum(0))), sums);
}

TEST_CASE("column sums do not depend on the number of threads") {
  const at::Tensor x = random_tensor(1, {1000, 37});
  std::vector<std::vector<uint8_t>> results;
  for (const int threads : {1, 2}) {
    ops::Workspace ws(Context{.threads = threads});
    const at::Tensor sums = at::zeros({37}, at::kFloat);
    ops::add_column_sums(ws, x, sums);
    results.push_back(bytes(sums));
  }
  CHECK(results[0] == results[1]);
}

TEST_CASE("a tensor that is not in CPU memory is a DeviceError") {
  ops::Workspace ws(Context{.threads = 1});
  const at::Tensor elsewhere = at::empty({4, 4}, at::TensorOptions().dtype(at::kFloat).device(at::kMeta));
  const at::Tensor here = at::zeros({4, 4}, at::kFloat);
  CHECK_THROWS_AS(ops::linear_dgrad(ws, {.dy = elsewhere, .weight = here, .dx = here}), DeviceError);
  CHECK_THROWS_AS(ops::Workspace(Context{.device = DeviceKind::kCuda}), DeviceError);
}

}  // namespace esm::test
