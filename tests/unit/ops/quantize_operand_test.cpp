// Operands of products on the CPU: values of codes in both orders by their definition, products of them, and what is
// counted of them.
#include <cmath>

#include "ops/code_counts.h"
#include "ops/linear.h"
#include "precision/recipe.h"
#include "support/compare.h"
#include "support/quantize_oracle.h"
#include "support/random_tensor.h"
#include "support/torch.h"

namespace esm::test {
namespace {

using precision::Format;
using precision::Grouping;

const Context kContext{.threads = 1};

/// Emulated in both orders, with a scale of its own if it needs one. `counted` rows count.
ops::GemmOperand operand(const at::Tensor& x, const precision::Operand& format, int64_t counted) {
  ops::GemmOperand result(x);
  result.format = format;
  result.emulated = true;
  result.codes = at::full(x.sizes(), -7.0, x.options());
  result.codes_t = at::full(x.sizes(), -7.0, x.options());
  if (format.grouping == Grouping::kTensor || format.grouping == Grouping::kNv16)
    result.scale = {.scale = at::zeros({1}, at::kFloat),
                    .inverse = at::zeros({1}, at::kFloat),
                    .amax = at::zeros({1}, at::kFloat),
                    .measure = true,
                    .greatest = precision::greatest(format.format)};
  if (counted < x.size(0)) result.counted = ints({static_cast<int32_t>(counted)});
  return result;
}

/// Rows of very different size; padding holds garbage.
at::Tensor uneven(uint64_t seed, int64_t rows, int64_t cols, int64_t counted, at::ScalarType type) {
  const at::Tensor x = random_tensor(seed, {rows, cols});
  for (int64_t r = 0; r < rows; ++r) x[r].mul_(std::exp2(r % 7 - 3));
  x.narrow(0, counted, rows - counted).fill_(std::nan(""));
  return x.to(type);
}

/// What products shall see of x.
std::vector<double> expected_values(const at::Tensor& x, int64_t counted, const precision::Operand& format,
                                    bool transposed) {
  const auto rows = operand_of(x, counted, transposed);
  const Expected e = expected(rows, format);
  const std::vector<double> table = code_values(format_of(format));
  const uint32_t sign = format_of(format).sign();
  // The scale of the tensor, which multiplies those of blocks.
  const double whole = format.grouping == Grouping::kNv16 ? e.amax / 2688 : 1.0;
  const auto k = static_cast<int64_t>(rows[0].size());
  std::vector<double> result(e.codes.size());
  for (size_t i = 0; i < e.codes.size(); ++i) {
    const double magnitude = table[e.codes[i] & (sign - 1)] * e.inverses[i] * whole;
    const int64_t r = static_cast<int64_t>(i) / k, c = static_cast<int64_t>(i) % k;
    result[transposed ? c * static_cast<int64_t>(rows.size()) + r : static_cast<int64_t>(i)] =
        (e.codes[i] & sign) != 0 ? -magnitude : magnitude;
  }
  return result;
}

std::vector<precision::Operand> all_formats() {
  std::vector<precision::Operand> result;
  for (const precision::Recipe& recipe : precision::recipes()) {
    if (!recipe.quantized()) continue;
    for (const precision::Operand& operand : {recipe.forward.a, recipe.forward.b, recipe.dgrad.a})
      if (std::find(result.begin(), result.end(), operand) == result.end()) result.push_back(operand);
  }
  return result;
}

}  // namespace

TEST_CASE("operands of every recipe: values of codes in both orders, padding 0") {
  const auto type = GENERATE(at::kFloat, at::kBFloat16);
  for (const precision::Operand& format : all_formats()) {
    for (const auto& [rows, cols, counted] : {std::array<int64_t, 3>{16, 32, 16}, {200, 144, 170}, {130, 36, 1}}) {
      INFO(precision::describe(format) << " " << rows << " x " << cols << ", " << counted);
      const at::Tensor x = uneven(3, rows, cols, counted, type);
      const ops::GemmOperand made = operand(x, format, counted);
      ops::Workspace ws(kContext);
      ops::quantize_operand(ws, made);
      // Scales that are powers of two leave what FP32 and BF16 hold exactly.
      const bool exact = format.grouping != Grouping::kNv16;
      for (const bool transposed : {false, true}) {
        CAPTURE(transposed);
        const std::vector<double> got = values(transposed ? made.codes_t : made.codes),
                                  wanted = expected_values(x, counted, format, transposed);
        if (exact) {
          CHECK(got == wanted);
        } else {
          int64_t far = 0;
          for (size_t i = 0; i < got.size(); ++i)
            far +=
                std::abs(got[i] - wanted[i]) <= std::abs(wanted[i]) * (type == at::kFloat ? 1e-6 : 1.0 / 256) ? 0 : 1;
          CHECK(far == 0);
        }
        CHECK(std::all_of(got.begin() + counted * cols, got.end(), [](double v) { return v == 0; }));
      }
      if (!made.scale.amax.defined()) continue;
      CHECK(values(made.scale.amax)[0] == x.narrow(0, 0, counted).to(at::kDouble).abs().max().item<double>());
      CHECK(values(made.scale.inverse)[0] == Approx(1 / values(made.scale.scale)[0]));
    }
  }
}

TEST_CASE("a matrix that is not quantized, and orders that are not wanted, are left alone") {
  ops::Workspace ws(kContext);
  const at::Tensor x = uneven(1, 40, 8, 40, at::kFloat);
  const ops::GemmOperand plain(x);
  const auto before = bytes(x);
  ops::quantize_operand(ws, plain);
  CHECK(bytes(x) == before);
  CHECK((plain.by_rows().is_same(x) && plain.by_columns().is_same(x)));
  ops::GemmOperand rows = operand(x, {Format::kE2M1, Grouping::kNv16}, 40), columns = rows;
  const ops::GemmOperand both = operand(x, {Format::kE2M1, Grouping::kNv16}, 40);
  rows.codes_t = columns.codes = at::Tensor();
  columns.codes_t = at::empty({40, 8}, at::kFloat);
  for (const ops::GemmOperand* a : {&std::as_const(rows), &std::as_const(columns), &both})
    ops::quantize_operand(ws, *a);
  CHECK(bytes(rows.codes) == bytes(both.codes));
  CHECK(bytes(columns.codes_t) == bytes(both.codes_t));
  CHECK((bytes(both.codes) != bytes(both.codes_t)));
}

TEST_CASE("a scale that is given is used as it is, and amax is raised") {
  ops::Workspace ws(kContext);
  const at::Tensor x = random_tensor(1, {4, 8});
  x[1][2].fill_(-50);
  ops::GemmOperand a = operand(x, {Format::kE4M3, Grouping::kTensor, precision::Timing::kDelayed}, 4);
  a.scale.measure = false;
  a.scale.scale.fill_(32);
  for (const float was : {3.0f, 60.0f}) {
    a.scale.amax.fill_(was);
    ops::quantize_operand(ws, a);
    CHECK(values(a.scale.amax)[0] == std::max(was, 50.0f));
    CHECK(values(a.scale.scale)[0] == 32);
    CHECK(a.codes[1][2].item<float>() == -14);  // 448 / 32
  }
}

TEST_CASE("products of operands are those of the values that their codes stand for") {
  const auto type = GENERATE(at::kFloat, at::kBFloat16);
  const int64_t tokens = 144, in = 96, out = 80, counted = 130;
  for (const precision::Recipe& recipe : precision::recipes()) {
    if (!recipe.quantized()) continue;
    CAPTURE(recipe.name);
    ops::Workspace ws(kContext);
    const at::Tensor x_ = uneven(1, tokens, in, counted, type), dy_ = uneven(3, tokens, out, counted, type);
    const ops::GemmOperand x = operand(x_, recipe.forward.a, counted), dy = operand(dy_, recipe.dgrad.a, counted),
                           w = operand(uneven(2, out, in, out, type), recipe.forward.b, out);
    for (const ops::GemmOperand* a : {&x, &dy, &w}) ops::quantize_operand(ws, *a);
    const at::Tensor bias = random_tensor(4, {out}, type);
    const at::Tensor y = at::empty({tokens, out}, type), y2 = at::empty({tokens, out}, type);
    ops::linear(ws, {.x = x, .weight = w, .bias = bias, .residual = {}, .y = y});
    ops::linear(ws, {.x = x.codes, .weight = w.codes, .bias = bias, .residual = {}, .y = y2});
    CHECK(bytes(y) == bytes(y2));
    const auto wide = [](const at::Tensor& t) { return t.to(at::kDouble); };
    const DType dtype = type == at::kFloat ? DType::kF32 : DType::kBF16;
    check_close("y", values(y), values(wide(x.codes).matmul(wide(w.codes).t()).add(wide(bias))),
                operation_tolerance(dtype, in));
    const at::Tensor dx = at::empty({tokens, in}, type);
    ops::linear_dgrad(ws, {.dy = dy, .weight = w, .dx = dx});
    check_close("dx", values(dx), values(wide(dy.codes).matmul(wide(w.codes_t))), operation_tolerance(dtype, out));
    const at::Tensor dw = at::full({out, in}, 2.0, at::kFloat);
    ops::linear_wgrad(ws, {.dy = dy, .x = x, .dweight = dw});
    check_close("dw", values(dw), values(wide(dy.codes_t).t().matmul(wide(x.codes_t)).add(2)),
                operation_tolerance(DType::kF32, tokens));
    // Far from the exact product, so that what was read makes a difference.
    const at::Tensor exact = wide(x_).narrow(0, 0, counted).matmul(wide(w.values).t()).add(wide(bias));
    const double off = difference(values(y.narrow(0, 0, counted)), values(exact)).relative_l2;
    CAPTURE(off);
    CHECK((off > 0.01 && off < 0.3));
  }
}

TEST_CASE("codes that are 0 and codes at the end of the range are counted, padding is not") {
  ops::Workspace ws(kContext);
  ops::CodeCounts counts(kContext);
  CHECK(counts.add("a") == 0);
  CHECK(counts.add("b") == 1);
  counts.allocate();
  CHECK(counts.names() == std::vector<std::string>{"a", "b"});
  const at::Tensor x = at::zeros({3, 4}, at::kFloat);
  const std::vector<float> elements{0, 1e-9f, -448, 1000, 1, -2, 440, 400, 500, 0, 0, 0};
  std::copy(elements.begin(), elements.end(), x.mutable_data_ptr<float>());
  ops::GemmOperand a = operand(x, {Format::kE4M3, Grouping::kTensor}, 2);
  a.scale.measure = false;
  a.scale.scale.fill_(1);
  ops::quantize_operand(ws, a);
  counts.count(a, 0);
  CHECK(counts.counts().sum().item<int64_t>() == 0);  // nothing is watched
  counts.watch(true);
  counts.count(a, -1);
  CHECK(counts.counts().sum().item<int64_t>() == 0);
  for (int repeat = 0; repeat < 2; ++repeat) {
    counts.count(a, 1);
    // 440 rounds to 448; the third row is padding.
    CHECK(values(counts.counts()) == std::vector<double>{0, 0, 0, 2, 3, 8});
  }
  // Groups with scales of their own always reach the end of the range, which says nothing.
  const ops::GemmOperand grouped = operand(x, {Format::kE4M3, Grouping::kOuter}, 3);
  ops::quantize_operand(ws, grouped);
  counts.count(grouped, 0);
  CHECK(values(counts.counts()[0]) == std::vector<double>{5, 0, 12});
}

TEST_CASE("moments are sums over the rows that count") {
  const auto type = GENERATE(at::kFloat, at::kBFloat16);
  const at::Tensor x = random_tensor(5, {40, 7}, type);
  x.narrow(0, 33, 7).fill_(std::nan(""));
  const auto check = [&](const at::Tensor& got, const at::Tensor& rows) {
    const at::Tensor wide = rows.to(at::kDouble);
    CHECK(values(got)[0] == Approx(wide.sum().item<double>()));
    CHECK(values(got)[1] == Approx(wide.square().sum().item<double>()));
  };
  check(ops::moments(kContext, x, ints({33})), x.narrow(0, 0, 33));
  check(ops::moments(kContext, x.narrow(0, 0, 20), {}), x.narrow(0, 0, 20));
  CHECK(values(ops::moments(kContext, x, ints({0}))) == std::vector<double>{0, 0});
}

}  // namespace esm::test
