#include "kernels/quantize.h"

#include <memory>

#include "checks/cases/quantize.h"
#include "checks/fp8_harness.h"
#include "kernels/fp8_scale.h"

namespace esm::checks {
namespace {

using kernels::BlockScaling;

std::string case_name(const char* what, DType dtype, DType to, const cases::QuantizeCase& c) {
  std::string name = text("%s %s->%s %lldx%lld", what, name_of(dtype), name_of_fp8(to), static_cast<long long>(c.rows),
                          static_cast<long long>(c.cols));
  if (c.counted >= 0) name += text(" of %lld rows", static_cast<long long>(c.counted));
  return name;
}

// Behind the rows that count lies what must not be read.
void spoil(std::vector<float>& x, const cases::QuantizeCase& c) {
  for (size_t i = static_cast<size_t>(counted_of(c.rows, c.counted) * c.cols); i < x.size(); ++i) x[i] = INFINITY;
}

void by_tensor(const cases::QuantizeCase& c, DType dtype, DType to, float scale, std::vector<float> x, bool sum,
               const char* what, Random& random, Report& report) {
  spoil(x, c);
  const Activations from(dtype, x);
  const RowCount count(c.counted);
  const int64_t counted = counted_of(c.rows, c.counted);
  const Fp8Matrix want = fp8_matrix(x, c.rows, c.cols, counted, to, scale);
  const std::vector<float> want_amax{want.amax};
  Fp8Buffers out(to, c.rows * c.cols, scale);
  const std::string name = case_name(what, dtype, to, c);

  CHECK_CUDA(launch(kernels::QuantizeArgs{.dtype = dtype,
                                          .rows = c.rows,
                                          .cols = c.cols,
                                          .from = from.get(),
                                          .row_count = count.get(),
                                          .to = out.out(true, false)},
                    nullptr));
  report.same(name + " rows", out.rows(), want.rows);
  report.same(name + " amax", out.amax(), want_amax);

  const std::vector<float> before = random.normals(c.cols);
  DeviceBuffer<float> sums(before);
  const DeviceBuffer<uint8_t> workspace(kernels::quantize_transpose_workspace(c.rows, c.cols));
  kernels::QuantizeTransposeArgs args{.dtype = dtype, .row_count = count.get()};
  args.matrix[0] = {.rows = c.rows,
                    .cols = c.cols,
                    .from = from.get(),
                    .to = out.out(true, true),
                    .sum = sum ? sums.get() : nullptr,
                    .workspace = workspace.get()};
  out.reset();
  CHECK_CUDA(launch(args, nullptr));
  report.same(name + " both: rows", out.rows(), want.rows);
  report.same(name + " both: transposed", out.transposed(), want.transposed);
  report.same(name + " both: amax", out.amax(), want_amax);
  if (sum) {
    std::vector<double> want_sum(before.begin(), before.end()), sizes(before.size());
    for (int64_t i = 0; i < counted * c.cols; ++i) {
      want_sum[static_cast<size_t>(i % c.cols)] += x[static_cast<size_t>(i)];
      sizes[static_cast<size_t>(i % c.cols)] += std::abs(x[static_cast<size_t>(i)]);
    }
    const std::vector<float> got = sums.download();
    report.close(name + " sum", got, want_sum, [&](size_t k) { return 2e-6 * (1 + sizes[k]); });
    sums.upload(before);
    CHECK_CUDA(launch(args, nullptr));
    report.same(name + " sum twice", got, sums.download());
  }
  // One order alone; an amax that is larger already stays.
  out.reset(INFINITY);
  args.matrix[0].sum = nullptr;
  args.matrix[0].to = out.out(false, true);
  CHECK_CUDA(launch(args, nullptr));
  report.same(name + " transposed alone", out.transposed(), want.transposed);
  report.equal(name + " amax not lowered", out.amax()[0] >= INFINITY || std::isnan(want.amax) ? 0 : 1);

  DeviceBuffer<float> amax(std::vector<float>{0.0f});
  CHECK_CUDA(launch(kernels::AmaxArgs{.dtype = dtype,
                                      .rows = c.rows,
                                      .cols = c.cols,
                                      .x = from.get(),
                                      .row_count = count.get(),
                                      .amax = amax.get()},
                    nullptr));
  report.same(name + " amax alone", amax.download(), want_amax);
}

// The weights of a layer: matrices of several shapes in one launch.
void several(DType dtype, Random& random, Report& report) {
  const std::vector<cases::QuantizeCase> shapes{{3840, 320, -1}, {16, 1296, -1}, {320, 320, -1}, {144, 16, -1}};
  std::vector<std::vector<float>> values;
  std::vector<std::unique_ptr<Activations>> from;
  std::vector<std::unique_ptr<Fp8Buffers>> out;
  kernels::QuantizeTransposeArgs args{.dtype = dtype, .n_matrices = static_cast<int>(shapes.size())};
  for (size_t i = 0; i < shapes.size(); ++i) {
    const auto& [rows, cols, counted] = shapes[i];
    values.push_back(random.normals(rows * cols, 0.02f));
    from.push_back(std::make_unique<Activations>(dtype, values[i]));
    out.push_back(std::make_unique<Fp8Buffers>(DType::kF8E4M3, rows * cols, 2048.0f));
    args.matrix[i] = {.rows = rows, .cols = cols, .from = from[i]->get(), .to = out[i]->out(true, true)};
  }
  CHECK_CUDA(launch(args, nullptr));
  for (size_t i = 0; i < shapes.size(); ++i) {
    const Fp8Matrix want = fp8_matrix(values[i], shapes[i].rows, shapes[i].cols, shapes[i].rows, DType::kF8E4M3, 2048);
    const std::string name = case_name("weights", dtype, DType::kF8E4M3, shapes[i]);
    report.same(name + " rows", out[i]->rows(), want.rows);
    report.same(name + " transposed", out[i]->transposed(), want.transposed);
    report.same(name + " amax", out[i]->amax(), {want.amax});
  }
}

// --- by block --------------------------------------------------------------------------------------------------------

constexpr int64_t kBlock = 128;
int64_t blocks_of(int64_t n) { return (n + kBlock - 1) / kBlock; }

struct Block {
  int64_t rows, cols;  // extent
};

// Scales of all blocks, [blocks of rows, blocks of columns].
std::vector<float> scales_of(const std::vector<float>& x, const cases::QuantizeCase& c, const Block& block, DType to) {
  const int64_t across = (c.cols + block.cols - 1) / block.cols;
  std::vector<float> amax(static_cast<size_t>((c.rows + block.rows - 1) / block.rows * across));
  for (int64_t r = 0; r < counted_of(c.rows, c.counted); ++r)
    for (int64_t k = 0; k < c.cols; ++k) {
      float& a = amax[static_cast<size_t>(r / block.rows * across + k / block.cols)];
      a = std::max(a, std::abs(x[static_cast<size_t>(r * c.cols + k)]));
    }
  const float greatest = to == DType::kF8E4M3 ? kernels::kMaxE4M3 : kernels::kMaxE5M2;
  for (float& a : amax) a = kernels::power_of_two(kernels::scale_exponent(a, greatest, 0));
  return amax;
}

void by_block(const cases::QuantizeCase& c, BlockScaling scaling, DType dtype, DType to, Random& random,
              Report& report) {
  std::vector<float> x = random.normals(c.rows * c.cols);
  // Magnitudes that differ from block to block; some blocks of zeros.
  for (int64_t i = 0; i < c.rows * c.cols; ++i) {
    const int64_t r = i / c.cols, k = i % c.cols;
    x[static_cast<size_t>(i)] *= (r / 9 + k / 128) % 11 == 0 ? 0.0f : std::exp2(static_cast<float>((r + k) % 23 - 11));
  }
  spoil(x, c);
  const Activations from(dtype, x);
  const RowCount count(c.counted);
  const bool outer = scaling == BlockScaling::kOuter, square = scaling == BlockScaling::k128x128;
  const Block row_block = outer ? Block{1, c.cols} : square ? Block{kBlock, kBlock} : Block{1, kBlock};
  const Block column_block = outer ? Block{c.rows, 1} : square ? Block{kBlock, kBlock} : Block{kBlock, 1};
  const std::vector<float> row_scales = scales_of(x, c, row_block, to),
                           column_scales = scales_of(x, c, column_block, to);
  const int64_t row_across = (c.cols + row_block.cols - 1) / row_block.cols,
                column_across = (c.cols + column_block.cols - 1) / column_block.cols;
  const auto row_scale = [&](int64_t r, int64_t k) {
    return row_scales[static_cast<size_t>(r / row_block.rows * row_across + k / row_block.cols)];
  };
  const auto column_scale = [&](int64_t r, int64_t k) {
    return column_scales[static_cast<size_t>(r / column_block.rows * column_across + k / column_block.cols)];
  };
  const Fp8Matrix want = fp8_matrix(x, c.rows, c.cols, counted_of(c.rows, c.counted), to, row_scale, column_scale);

  // Where the inverse of each block belongs.
  const int64_t row_stride = blocks_of(c.cols) + 3, column_stride = blocks_of(c.rows) + 1;
  const auto row_place = [&](int64_t r, int64_t k) {
    return outer ? r : square ? r / kBlock * row_stride + k / kBlock : k / kBlock * c.rows + r;
  };
  const auto column_place = [&](int64_t r, int64_t k) {
    return outer ? k : square ? k / kBlock * column_stride + r / kBlock : r / kBlock * c.cols + k;
  };
  const int64_t n_row = outer ? c.rows : square ? blocks_of(c.rows) * row_stride : blocks_of(c.cols) * c.rows;
  const int64_t n_column = outer ? c.cols : square ? blocks_of(c.cols) * column_stride : blocks_of(c.rows) * c.cols;
  DeviceBuffer<float> row_inverse(static_cast<size_t>(n_row)), column_inverse(static_cast<size_t>(n_column));
  const DeviceBuffer<uint8_t> workspace(kernels::quantize_outer_workspace(c.rows, c.cols));
  Fp8Buffers out(to, c.rows * c.cols, 1);
  kernels::QuantizeBlocksArgs args{.dtype = dtype,
                                   .scaling = scaling,
                                   .rows = c.rows,
                                   .cols = c.cols,
                                   .from = from.get(),
                                   .row_count = count.get(),
                                   .to_dtype = to,
                                   .to_rows = out.out(true, true).rows,
                                   .to_transposed = out.out(true, true).transposed,
                                   .row_inverse = row_inverse.get(),
                                   .column_inverse = column_inverse.get(),
                                   .row_stride = row_stride,
                                   .column_stride = column_stride,
                                   .workspace = workspace.get()};
  CHECK_CUDA(launch(args, nullptr));
  const char* names[] = {"blocks 1x128", "blocks 128x128", "outer"};
  const std::string name = case_name(names[static_cast<int>(scaling)], dtype, to, c);
  const auto got_rows = out.rows(), got_transposed = out.transposed();
  report.same(name + " rows", got_rows, want.rows);
  report.same(name + " transposed", got_transposed, want.transposed);
  const auto got_row = row_inverse.download(), got_column = column_inverse.download();
  size_t wrong = 0;
  for (int64_t r = 0; r < c.rows; ++r)
    for (int64_t k = 0; k < c.cols; ++k)
      wrong += (got_row[static_cast<size_t>(row_place(r, k))] != 1 / row_scale(r, k)) +
               (got_column[static_cast<size_t>(column_place(r, k))] != 1 / column_scale(r, k));
  report.equal(name + " inverse scales", wrong);

  for (const bool rows : {true, false}) {  // one order alone
    out.reset();
    args.to_rows = rows ? out.out(true, true).rows : nullptr;
    args.to_transposed = rows ? nullptr : out.out(true, true).transposed;
    args.row_inverse = rows ? row_inverse.get() : nullptr;
    args.column_inverse = rows ? nullptr : column_inverse.get();
    CHECK_CUDA(launch(args, nullptr));
    report.same(name + (rows ? " rows alone" : " transposed alone"), rows ? out.rows() : out.transposed(),
                rows ? want.rows : want.transposed);
  }
}

}  // namespace

void quantize_checks(Random& random, Report& report) {
  std::vector<float> every(0x10000);  // BF16 values, infinities and NaN among them
  for (uint32_t bits = 0; bits < every.size(); ++bits) every[bits] = float_from_bf16(static_cast<uint16_t>(bits));
  int which = 0;
  for (const DType to : {DType::kF8E4M3, DType::kF8E5M2}) {
    for (const float scale : {1.0f, 0x1p9f, 0x1p-20f, 0.7f})
      by_tensor({256, 256, -1}, DType::kBF16, to, scale, every, false, text("sweep times %g", scale).c_str(), random,
                report);
    for (const DType dtype : {DType::kBF16, DType::kF32})
      for (const cases::QuantizeCase& c : cases::quantize_cases()) {
        by_tensor(c, dtype, to, 32.0f, random.normals(c.rows * c.cols, 3.0f, 0.5f), true, "quantize", random, report);
        for (const BlockScaling scaling : {BlockScaling::k1x128, BlockScaling::k128x128, BlockScaling::kOuter})
          if (which++ % 4 != 3) by_block(c, scaling, dtype, to, random, report);
      }
  }
  for (const DType dtype : {DType::kBF16, DType::kF32}) several(dtype, random, report);
}

}  // namespace esm::checks
