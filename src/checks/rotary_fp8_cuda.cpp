#include "kernels/rotary_fp8.h"

#include "checks/cases/rotary_fp8.h"
#include "checks/fp8_harness.h"
#include "kernels/rotary.h"

// The kernel of BF16 (held against FP64 by the family "rotary"), then a cast on the host: equal bytes.
namespace esm::checks {
namespace {

constexpr int64_t kMaxPosition = 1100;

struct Tables {
  std::vector<float> cos, sin;
};
Tables tables(int64_t head_dim) {
  Tables t;
  for (int64_t p = 0; p < kMaxPosition; ++p)
    for (int64_t i = 0; i < head_dim / 2; ++i) {
      const double angle =
          static_cast<double>(p) * std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
      t.cos.push_back(static_cast<float>(std::cos(angle)));
      t.sin.push_back(static_cast<float>(std::sin(angle)));
    }
  return t;
}

struct Sums {
  std::vector<double> want, sizes;  // a column each
};
/// Of x turned back in double arithmetic; v as it is.
Sums column_sums(const std::vector<float>& x, const std::vector<int32_t>& positions, const Tables& t, int64_t counted,
                 int64_t heads, int64_t head_dim, const std::vector<float>& before) {
  Sums s{std::vector<double>(before.begin(), before.end()), std::vector<double>(before.size())};
  const size_t cols = before.size(), dim = static_cast<size_t>(head_dim), half = dim / 2;
  for (size_t r = 0; r < static_cast<size_t>(counted); ++r)
    for (size_t c = 0; c < cols; ++c) {
      const size_t i = c % dim % half, first = r * cols + c - c % dim + i;
      const size_t entry = static_cast<size_t>(positions[r]) * half + i;
      const double p = x[first], q = x[first + half], cos = t.cos[entry], sin = -t.sin[entry];
      const bool turned = c < 2 * static_cast<size_t>(heads) * dim;
      const double plain = x[r * cols + c];
      s.want[c] += !turned ? plain : c % dim < half ? p * cos - q * sin : q * cos + p * sin;
      s.sizes[c] += !turned ? std::abs(plain) : std::abs(p) + std::abs(q);
    }
  return s;
}

void check(const cases::RotaryFp8Case& c, DType to, Random& random, Report& report) {
  const int64_t cols = 3 * c.heads * c.head_dim, n = c.tokens * cols, counted = counted_of(c.tokens, c.counted);
  const float scale = to == DType::kF8E4M3 ? 64.0f : 512.0f;
  std::string name =
      text("rotary_fp8 %s %lld tokens %lld heads of %lld", name_of_fp8(to), static_cast<long long>(c.tokens),
           static_cast<long long>(c.heads), static_cast<long long>(c.head_dim));
  if (c.counted >= 0) name += text(" of %lld rows", static_cast<long long>(c.counted));
  const Tables host = tables(c.head_dim);
  const DeviceBuffer<float> cos(host.cos), sin(host.sin);
  std::vector<float> x = random.normals(n, 0.8f, 0.05f);
  std::vector<int32_t> positions;
  for (int64_t t = 0; t < c.tokens; ++t) positions.push_back(static_cast<int32_t>(random.below(kMaxPosition)));
  const DeviceBuffer<int32_t> device_positions(positions);

  const Activations turned(DType::kBF16, x);
  CHECK_CUDA(launch(kernels::RotaryArgs{.tokens = c.tokens,
                                        .heads = c.heads,
                                        .head_dim = c.head_dim,
                                        .qkv = turned.get(),
                                        .positions = device_positions.get(),
                                        .cos = cos.get(),
                                        .sin = sin.get(),
                                        .inverse = true},
                    nullptr));
  const Fp8Matrix want = fp8_matrix(turned.download(), c.tokens, cols, counted, to, scale);
  const std::vector<float> before = random.normals(cols);
  const Sums sums = column_sums(x, positions, host, counted, c.heads, c.head_dim, before);

  // Behind the rows that count lies what must not be read.
  for (size_t i = static_cast<size_t>(counted * cols); i < x.size(); ++i) x[i] = NAN;
  for (size_t t = static_cast<size_t>(counted); t < positions.size(); ++t) positions[t] = 1 << 30;
  const Activations device(DType::kBF16, x);
  const DeviceBuffer<int32_t> spoilt_positions(positions);
  const RowCount count(c.counted);
  Fp8Buffers out(to, n, scale);
  DeviceBuffer<float> device_sums(before);
  DeviceBuffer<uint8_t> workspace(kernels::rotary_fp8_backward_workspace(c.tokens, c.heads, c.head_dim));
  kernels::RotaryFp8BackwardArgs args{.tokens = c.tokens,
                                      .heads = c.heads,
                                      .head_dim = c.head_dim,
                                      .dqkv = device.get(),
                                      .positions = spoilt_positions.get(),
                                      .cos = cos.get(),
                                      .sin = sin.get(),
                                      .row_count = count.get(),
                                      .to = out.out(true, true),
                                      .sums = device_sums.get(),
                                      .workspace = workspace.get()};
  CHECK_CUDA(launch(args, nullptr));
  report.same(name + " rows", out.rows(), want.rows);
  report.same(name + " transposed", out.transposed(), want.transposed);
  report.same(name + " amax", out.amax(), {want.amax});
  const std::vector<float> got = device_sums.download();
  report.close(name + " sums", got, sums.want, [&](size_t k) { return 2e-6 * (1 + sums.sizes[k]); });

  device_sums.upload(before);
  workspace.poison();
  out.reset();
  CHECK_CUDA(launch(args, nullptr));
  report.same(name + " rows twice", out.rows(), want.rows);
  report.same(name + " sums twice", got, device_sums.download());

  // One order alone, and none: no sums.
  args.sums = nullptr;
  args.workspace = nullptr;
  for (const bool rows : {true, false}) {
    out.reset();
    args.to = out.out(rows, !rows);
    CHECK_CUDA(launch(args, nullptr));
    report.same(name + (rows ? " rows alone" : " transposed alone"), rows ? out.rows() : out.transposed(),
                rows ? want.rows : want.transposed);
  }
  out.reset();
  args.to = out.out(false, false);
  CHECK_CUDA(launch(args, nullptr));
  report.same(name + " measured", out.amax(), {want.amax});
}

}  // namespace

void rotary_fp8_checks(Random& random, Report& report) {
  for (const cases::RotaryFp8Case& c : cases::rotary_fp8_cases()) {
    check(c, DType::kF8E5M2, random, report);
    if (c.head_dim <= 64) check(c, DType::kF8E4M3, random, report);
  }
  size_t wrong = 0;
  for (const int64_t head_dim : {8, 24, 40, 136, 256}) wrong += kernels::rotary_fp8_supports(head_dim);
  report.equal("rotary_fp8 refuses other sizes of heads", wrong);
}

}  // namespace esm::checks
