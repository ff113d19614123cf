// Matrices to codes and back, every grouping, against loops over elements in double arithmetic.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "kernels/fp8_scale.h"
#include "ops/quantize.h"
#include "support/compare.h"
#include "support/quantize_oracle.h"
#include "support/random_tensor.h"
#include "support/torch.h"

namespace esm::test {
namespace {

using precision::Format;
using precision::Grouping;
using precision::Operand;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

constexpr Operand kOperands[] = {{Format::kE4M3, Grouping::kTensor},    {Format::kE5M2, Grouping::kTensor},
                                 {Format::kE4M3, Grouping::kOuter},     {Format::kE5M2, Grouping::kOuter},
                                 {Format::kE4M3, Grouping::kVector128}, {Format::kE4M3, Grouping::kBlock128},
                                 {Format::kE4M3, Grouping::kMx32},      {Format::kE2M1, Grouping::kNv16}};

struct Quantized {
  at::Tensor codes, inverses, scale, amax;
};

/// As a user does it who knows only the tensor: its scale, if it has one, from its amax.
Quantized quantize(const at::Tensor& x, int64_t valid_rows, const Operand& to, bool transposed = false,
                   int threads = 1) {
  at::set_num_threads(threads);
  const Context context{.threads = threads};
  const int64_t rows = x.size(transposed ? 1 : 0), k = x.size(transposed ? 0 : 1);
  const precision::OperandLayout layout = precision::layout(to, rows, k);
  Quantized q{.codes = at::full({rows, layout.code_bytes}, 0xcc, at::kByte),
              .inverses = layout.scales_are_bytes ? at::full({layout.scales}, 0xcc, at::kByte)
                                                  : at::full({layout.scales}, -7.0, at::kFloat),
              .scale = {},
              .amax = at::zeros({1}, at::kFloat)};
  const float amax = ops::largest_magnitude(context, x, valid_rows);
  if (to.grouping == Grouping::kTensor)
    q.scale = at::full({1}, kernels::tensor_scale(amax, precision::greatest(to.format), 0, 0.0f), at::kFloat);
  if (to.grouping == Grouping::kNv16) q.scale = at::full({1}, kernels::nv_tensor_scale(amax), at::kFloat);
  ops::quantize(context, {.x = x,
                          .valid_rows = valid_rows,
                          .to = to,
                          .transposed = transposed,
                          .scale = q.scale,
                          .codes = q.codes,
                          .inverses = q.inverses,
                          .amax = q.amax});
  return q;
}

at::Tensor dequantize(const Quantized& q, const Operand& from, int64_t rows, int64_t k) {
  const at::Tensor y = at::full({rows, k}, -7.0, at::kFloat);
  ops::dequantize(Context{.threads = at::get_num_threads()},
                  {.from = from,
                   .codes = q.codes,
                   .inverses = q.inverses,
                   .scale = from.grouping == Grouping::kNv16 ? q.scale : at::Tensor(),
                   .y = y});
  return y;
}

/// Normal values times powers of two that change from place to place; some rows are 0; padding holds garbage.
at::Tensor uneven_matrix(uint64_t seed, int64_t rows, int64_t cols, int64_t valid_rows, at::ScalarType type) {
  const at::Tensor x = random_tensor(seed, {rows, cols});
  float* values = x.mutable_data_ptr<float>();
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) {
      float& value = values[r * cols + c];
      value = std::ldexp(value, static_cast<int>((r / 5 * 7 + c / 24 * 3) % 23) - 11);
      if (r % 9 == 4) value = 0.0f;
      if (r >= valid_rows) value = c % 2 == 0 ? kNan : 1e30f;
    }
  return x.to(type);
}

/// One code a byte.
std::vector<uint8_t> unpacked(const Quantized& q, const Operand& operand, int64_t rows, int64_t k) {
  std::vector<uint8_t> out;
  const auto* p = q.codes.const_data_ptr<uint8_t>();
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < k; ++i)
      out.push_back(operand.format == Format::kE2M1
                        ? static_cast<uint8_t>(p[r * q.codes.size(1) + i / 2] >> (i % 2 * 4) & 0xf)
                        : p[r * q.codes.size(1) + i]);
  return out;
}

/// Scale of each element by the layout that formats.h promises: FP32 values or bytes.
std::vector<double> spread(const Quantized& q, const Operand& operand, int64_t rows, int64_t k) {
  const std::vector<double> stored = values(q.inverses);
  const auto up = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  std::vector<double> out;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < k; ++i) switch (operand.grouping) {
        case Grouping::kNone:
        case Grouping::kTensor: out.push_back(stored[0]); break;
        case Grouping::kOuter: out.push_back(stored[r]); break;
        case Grouping::kVector128: out.push_back(stored[i / 128 * rows + r]); break;
        case Grouping::kBlock128: out.push_back(stored[r / 128 * (up(up(k, 128), 4) * 4) + i / 128]); break;
        case Grouping::kMx32: out.push_back(stored[kernels::group_scale_index(r, i / 32, up(k, 32))]); break;
        case Grouping::kNv16: out.push_back(stored[kernels::group_scale_index(r, i / 16, up(k, 16))]); break;
      }
  return out;
}

struct Shape {
  int64_t rows, cols, valid_rows;
};
constexpr Shape kShapes[] = {{1, 1, 1},     {16, 16, 16},    {33, 65, 33},    {48, 130, 31}, {128, 128, 128},
                             {129, 127, 0}, {130, 257, 129}, {256, 160, 140}, {1, 300, 1},   {300, 1, 299}};

}  // namespace

TEST_CASE("codes, scales and amax of every grouping are those of the definition, uneven sizes and padding included") {
  const auto type = GENERATE(at::kFloat, at::kBFloat16);
  const bool transposed = GENERATE(false, true);
  for (const Operand& to : kOperands) {
    for (const Shape& shape : kShapes) {
      INFO(precision::describe(to) << " [" << shape.rows << ", " << shape.cols << "] " << shape.valid_rows);
      const at::Tensor x = uneven_matrix(1, shape.rows, shape.cols, shape.valid_rows, type);
      const Quantized q = quantize(x, shape.valid_rows, to, transposed);
      const Expected e = expected(operand_of(x, shape.valid_rows, transposed), to);
      const int64_t rows = transposed ? shape.cols : shape.rows, k = transposed ? shape.rows : shape.cols;
      CHECK(unpacked(q, to, rows, k) == e.codes);
      CHECK(values(q.amax)[0] == e.amax);
      const std::vector<double> scales = spread(q, to, rows, k);
      CHECK(scales == (e.block.empty() ? e.inverses : std::vector<double>(e.block.begin(), e.block.end())));
      // Back: the value of each code times its scale.
      const std::vector<double> table = code_values(format_of(to));
      const uint32_t sign = format_of(to).sign();
      std::vector<double> back;
      for (size_t i = 0; i < e.codes.size(); ++i) {
        const double magnitude = table[e.codes[i] & (sign - 1)] * e.inverses[i];
        back.push_back((e.codes[i] & sign) != 0 ? -magnitude : magnitude);
        if (to.grouping == Grouping::kNv16) {
          const float inverse = 1.0f / q.scale.const_data_ptr<float>()[0];
          back.back() = static_cast<double>(static_cast<float>(back.back()) * inverse);
        }
      }
      CHECK(values(dequantize(q, to, rows, k)) == back);
    }
  }
}

TEST_CASE("unused bytes are 0: half of the last byte of an odd row in E2M1, padding of scales") {
  const at::Tensor x = at::full({3, 5}, 6.0, at::kFloat);
  const Quantized nv = quantize(x, 3, {Format::kE2M1, Grouping::kNv16});
  CHECK(bytes(nv.codes) == std::vector<uint8_t>{0x77, 0x77, 0x07, 0x77, 0x77, 0x07, 0x77, 0x77, 0x07});
  const Quantized block = quantize(x, 3, {Format::kE4M3, Grouping::kBlock128});
  CHECK(values(block.inverses) == std::vector<double>{1.0 / 64, 0, 0, 0});
  for (const Operand& to : {Operand{Format::kE4M3, Grouping::kMx32}, Operand{Format::kE2M1, Grouping::kNv16}}) {
    const at::Tensor y = at::full({130, 96}, 6.0, at::kFloat);
    const std::vector<uint8_t> scales = bytes(quantize(y, 130, to).inverses);
    const int64_t groups = to.grouping == Grouping::kMx32 ? 3 : 6;
    CHECK(std::ssize(scales) - std::ranges::count(scales, uint8_t{0}) == 130 * groups);
    CHECK(scales.size() == (groups == 3 ? 1024u : 2048u));
  }
}

TEST_CASE("results do not depend on the number of threads") {
  const at::Tensor x = uneven_matrix(2, 700, 530, 650, at::kBFloat16);
  for (const Operand& to : kOperands) {
    for (const bool transposed : {false, true}) {
      const Quantized one = quantize(x, 650, to, transposed, 1), two = quantize(x, 650, to, transposed, 2);
      CHECK(bytes(one.codes) == bytes(two.codes));
      CHECK(bytes(one.inverses) == bytes(two.inverses));
      CHECK(bytes(one.amax) == bytes(two.amax));
    }
  }
}

TEST_CASE("the transposed copy of a tensor or of 128 x 128 blocks has the same codes, other groupings have others") {
  const at::Tensor x = uneven_matrix(3, 150, 200, 150, at::kFloat);
  for (const Operand& to : kOperands) {
    INFO(precision::describe(to));
    const Quantized rows = quantize(x, 150, to), columns = quantize(x, 150, to, true);
    const std::vector<uint8_t> a = unpacked(rows, to, 150, 200), b = unpacked(columns, to, 200, 150);
    int64_t different = 0;
    for (int64_t r = 0; r < 150; ++r)
      for (int64_t c = 0; c < 200; ++c) different += a[r * 200 + c] != b[c * 150 + r];
    const bool shared = to.grouping == Grouping::kTensor || to.grouping == Grouping::kBlock128;
    CHECK((different == 0) == shared);
  }
}

TEST_CASE("errors of normal values stay within half a step, and their size is what the format has") {
  // Root of the mean square over normal values, relative: measured 0.026 (E4M3), 0.053 (E5M2), 0.095 (NVFP4).
  const at::Tensor x = random_tensor(4, {256, 384});
  const std::vector<double> exact = values(x);
  for (const Operand& to : kOperands) {
    INFO(precision::describe(to));
    const Quantized q = quantize(x, 256, to);
    const std::vector<double> y = values(dequantize(q, to, 256, 384)), stored = spread(q, to, 256, 384);
    const CodeFormat& f = format_of(to);
    const double relative = std::ldexp(1.0, -f.mantissa_bits - 1), least = code_value(f, 1) / 2;
    const std::vector<double> scales = code_values(kE4M3Format);
    double worst = 0;
    for (size_t i = 0; i < exact.size(); ++i) {
      double inverse = stored[i];
      if (to.grouping == Grouping::kMx32) inverse = std::ldexp(1.0, static_cast<int>(stored[i]) - 127);
      if (to.grouping == Grouping::kNv16)
        inverse = scales[static_cast<size_t>(stored[i])] / static_cast<double>(q.scale.const_data_ptr<float>()[0]);
      worst = std::max(worst, std::fabs(y[i] - exact[i]) / std::max(std::fabs(exact[i]) * relative, least * inverse));
    }
    CHECK(worst <= 1 + 1e-6);
    CHECK(worst > 0.8);
    const double l2 = difference(y, exact).relative_l2;
    const double typical = to.format == Format::kE4M3 ? 0.026 : to.format == Format::kE5M2 ? 0.053 : 0.095;
    CHECK(l2 < 1.05 * typical);
    CHECK(l2 > 0.95 * typical);
  }
}

TEST_CASE("an outlier costs precision in its own group only") {
  const at::Tensor x = random_tensor(5, {256, 256}), spoiled = x.clone();
  spoiled.mutable_data_ptr<float>()[130 * 256 + 7] = 1e9f;
  for (const Operand& to : kOperands) {
    INFO(precision::describe(to));
    if (to.grouping == Grouping::kNv16) continue;  // its scales have one of the whole tensor above them
    const std::vector<double> a = values(dequantize(quantize(x, 256, to), to, 256, 256));
    const std::vector<double> b = values(dequantize(quantize(spoiled, 256, to), to, 256, 256));
    const auto [rows, k] = group_of(to.grouping);
    int64_t outside = 0, inside = 0;
    for (int64_t r = 0; r < 256; ++r)
      for (int64_t c = 0; c < 256; ++c) {
        const bool same_group = (rows == 0 || r / rows == 130 / rows) && (k == 0 || c / k == 7 / k);
        (same_group ? inside : outside) += a[r * 256 + c] != b[r * 256 + c];
      }
    CHECK(outside == 0);
    CHECK(inside > 10);
  }
}

TEST_CASE("what was dequantized is quantized to the same values again, for every power-of-two scale") {
  const at::Tensor x = uneven_matrix(6, 140, 260, 140, at::kFloat);
  for (const Operand& to : kOperands) {
    INFO(precision::describe(to));
    if (to.grouping == Grouping::kNv16) continue;
    const at::Tensor once = dequantize(quantize(x, 140, to), to, 140, 260);
    CHECK(values(dequantize(quantize(once, 140, to), to, 140, 260)) == values(once));
  }
}

TEST_CASE("NaN stays NaN and infinities are seen, in the result or in the amax") {
  for (const Operand& to : kOperands) {
    for (const float bad : {kNan, kInfinity, -kInfinity}) {
      INFO(precision::describe(to) << " " << bad);
      const at::Tensor x = random_tensor(7, {40, 300});
      x.mutable_data_ptr<float>()[20 * 300 + 150] = bad;
      const Quantized q = quantize(x, 40, to);
      const auto amax = static_cast<float>(values(q.amax)[0]);
      CHECK((std::isnan(bad) ? std::isnan(amax) : amax == kInfinity));
      const auto y = static_cast<float>(values(dequantize(q, to, 40, 300))[20 * 300 + 150]);
      if (std::isnan(bad) || to.grouping == Grouping::kNv16)
        CHECK(std::isnan(y));
      else if (to.grouping == Grouping::kTensor)
        CHECK(y == std::copysign(precision::greatest(to.format), bad));  // scale 1: there was none to keep
      else
        CHECK(y == bad);
    }
  }
}

TEST_CASE("amax is raised, never lowered, and leaves padding out") {
  const at::Tensor x = at::full({4, 4}, -3.0, at::kFloat);
  x.mutable_data_ptr<float>()[13] = 50.0f;
  const Operand to{Format::kE4M3, Grouping::kOuter};
  CHECK(ops::largest_magnitude({}, x, 3) == 3.0f);
  CHECK(ops::largest_magnitude({}, x, 4) == 50.0f);
  CHECK(ops::largest_magnitude({}, x, 0) == 0.0f);
  const Quantized q = quantize(x, 3, to);
  CHECK(values(q.amax)[0] == 3.0);
  q.amax.fill_(7.0);
  const ops::QuantizeArgs args{
      .x = x, .valid_rows = 3, .to = to, .codes = q.codes, .inverses = q.inverses, .amax = q.amax};
  ops::quantize({}, args);
  CHECK(values(q.amax)[0] == 7.0);
  ops::QuantizeArgs all = args;
  all.valid_rows = 4;
  ops::quantize({}, all);
  CHECK(values(q.amax)[0] == 50.0);
}

TEST_CASE("delayed scales saturate what outgrew them, and one octave of growth fits when amax was a power of two") {
  const at::Tensor x = at::full({1, 16}, 100.0, at::kFloat);
  const at::Tensor scale = at::full({1}, kernels::tensor_scale(1.0f, kernels::kMaxE4M3, 0, 0.0f), at::kFloat);
  const Operand to{Format::kE4M3, Grouping::kTensor, precision::Timing::kDelayed};
  const Quantized q{
      .codes = at::zeros({1, 16}, at::kByte), .inverses = at::zeros({1}, at::kFloat), .scale = scale, .amax = {}};
  const auto back = [&] {
    ops::quantize({}, {.x = x, .valid_rows = 1, .to = to, .scale = scale, .codes = q.codes, .inverses = q.inverses});
    return values(dequantize(q, to, 1, 16))[0];
  };
  CHECK(back() == 1.75);  // 448 / 256
  x.fill_(1.75);
  CHECK(back() == 1.75);
}

TEST_CASE("what cannot be quantized is refused") {
  const at::Tensor x = random_tensor(8, {16, 16}), one = at::full({1}, 1.0, at::kFloat);
  const auto attempt = [&](const Operand& to, const at::Tensor& scale, int64_t code_bytes, int64_t valid_rows = 16) {
    ops::quantize({}, {.x = x,
                       .valid_rows = valid_rows,
                       .to = to,
                       .scale = scale,
                       .codes = at::zeros({16, code_bytes}, at::kByte),
                       .inverses = at::zeros({1}, at::kFloat)});
  };
  const Operand tensor{Format::kE4M3, Grouping::kTensor};
  CHECK_NOTHROW(attempt(tensor, one, 16));
  CHECK_THROWS_AS(attempt(tensor, one, 15), InternalError);
  CHECK_THROWS_AS(attempt(tensor, one, 16, 17), InternalError);
  CHECK_THROWS_AS(attempt(tensor, {}, 16), InternalError);
  CHECK_THROWS_AS(attempt(tensor, at::full({1}, 3.0, at::kFloat), 16), InternalError);
  CHECK_THROWS_AS(attempt(tensor, at::zeros({1}, at::kFloat), 16), InternalError);  // not measured yet
  CHECK_THROWS_AS(attempt({Format::kE2M1, Grouping::kTensor}, one, 8), InternalError);
  CHECK_THROWS_AS(attempt({Format::kBF16, Grouping::kNone}, {}, 16), InternalError);
  CHECK_THROWS_AS(attempt({Format::kE4M3, Grouping::kMx32}, {}, 16), InternalError);  // wants byte scales
}

}  // namespace esm::test
