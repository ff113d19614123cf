#include "ops/attention_fp64.h"

#include <algorithm>
#include <cmath>

#include "base/half.h"
#include "base/narrow.h"
#include "base/philox.h"

namespace esm::ops {
namespace {

std::vector<float> normals(int64_t n, uint64_t seed, uint32_t which) {
  std::vector<float> x;
  for (int64_t i = 0; i < n; ++i) {
    const PhiloxResult r = philox(seed, RandomStream::kSynthetic, static_cast<uint64_t>(i), which);
    x.push_back(float_from_bf16(bf16_from_float(static_cast<float>(normal_pair(r.v[0], r.v[1])[0]))));
  }
  return x;
}

/// Rows of one head of one sequence: element (row, c) of q, k, v or of a row of out.
struct Rows {
  const float* first;
  int64_t stride;
  double at(int64_t row, int64_t c) const { return first[row * stride + c]; }
};

double dot(const Rows& x, int64_t i, const Rows& y, int64_t j, int64_t n) {
  double sum = 0;
  for (int64_t c = 0; c < n; ++c) sum += x.at(i, c) * y.at(j, c);
  return sum;
}

void solve_head(const AttentionProblem& p, int64_t first, int64_t n, int64_t head, AttentionSolution& s) {
  const int64_t d = p.head_dim, wide = 3 * p.hidden();
  const int64_t at = first * wide + head * d, out_at = first * p.hidden() + head * d;
  const Rows q{p.qkv.data() + at, wide}, k{q.first + p.hidden(), wide}, v{k.first + p.hidden(), wide};
  const Rows dout{p.dout.data() + out_at, p.hidden()};
  double *out = s.out.data() + out_at, *dq = s.dqkv.data() + at, *dk = dq + p.hidden(), *dv = dk + p.hidden();
  std::vector<double> weight(static_cast<size_t>(n)), dp(weight.size());
  for (int64_t i = 0; i < n; ++i) {
    double top = -INFINITY, sum = 0, delta = 0;
    for (int64_t j = 0; j < n; ++j)
      top = std::max(top, weight[static_cast<size_t>(j)] = p.scale() * dot(q, i, k, j, d));
    for (double& w : weight) sum += w = std::exp(w - top);
    for (int64_t j = 0; j < n; ++j) {
      double& w = weight[static_cast<size_t>(j)];
      w /= sum;
      dp[static_cast<size_t>(j)] = dot(dout, i, v, j, d);
      delta += w * dp[static_cast<size_t>(j)];
    }
    for (int64_t j = 0; j < n; ++j) {
      const double w = weight[static_cast<size_t>(j)], ds = p.scale() * w * (dp[static_cast<size_t>(j)] - delta);
      for (int64_t c = 0; c < d; ++c) {
        out[i * p.hidden() + c] += w * v.at(j, c);
        dv[j * wide + c] += w * dout.at(i, c);
        dq[i * wide + c] += ds * k.at(j, c);
        dk[j * wide + c] += ds * q.at(i, c);
      }
    }
  }
}

/// L2 distance over L2 norm of the elements at[0, width) of each row of `stride`; infinite for NaN.
double distance(std::span<const float> got, const std::vector<double>& want, int64_t first, int64_t width,
                int64_t stride) {
  if (got.size() != want.size()) return INFINITY;
  double off = 0, norm = 0;
  for (size_t row = static_cast<size_t>(first); row < want.size(); row += static_cast<size_t>(stride))
    for (size_t i = row; i < row + static_cast<size_t>(width); ++i) {
      const double difference = static_cast<double>(got[i]) - want[i];
      off += difference * difference;
      norm += want[i] * want[i];
    }
  const double relative = std::sqrt(off / norm);
  return std::isnan(relative) ? INFINITY : relative;
}

}  // namespace

AttentionProblem::AttentionProblem(int64_t h, int64_t k, uint64_t seed) : heads(h), head_dim(k), cu_seqlens{0} {
  for (const int32_t length : {1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 143}) {
    cu_seqlens.push_back(cu_seqlens.back() + length);
    max_seqlen = std::max<int64_t>(max_seqlen, length);
  }
  qkv = normals(3 * tokens() * hidden(), seed, 1);
  dout = normals(tokens() * hidden(), seed, 2);
}

double AttentionProblem::scale() const { return 1.0 / std::sqrt(static_cast<double>(head_dim)); }

AttentionSolution solve(const AttentionProblem& p) {
  AttentionSolution s{.out = std::vector<double>(p.dout.size()), .dqkv = std::vector<double>(p.qkv.size())};
  for (size_t i = 0; i + 1 < p.cu_seqlens.size(); ++i)
    for (int64_t head = 0; head < p.heads; ++head)
      solve_head(p, p.cu_seqlens[i], p.cu_seqlens[i + 1] - p.cu_seqlens[i], head, s);
  return s;
}

void compare(const AttentionProblem& p, const AttentionSolution& want, std::span<const float> out,
             std::span<const float> dqkv, bool bf16, AttentionAgreement& agreement) {
  agreement.out = distance(out, want.out, 0, p.hidden(), p.hidden());
  for (int64_t part = 0; part < 3; ++part)
    agreement.gradient =
        std::max(agreement.gradient, distance(dqkv, want.dqkv, part * p.hidden(), p.hidden(), 3 * p.hidden()));
  // BF16: a rounding of the result is 1.7e-3; weights and their gradients are rounded before the second product.
  agreement.out_bound = bf16 ? 4e-3 : 5e-6;
  agreement.gradient_bound = bf16 ? 1e-2 : 1e-5;
}

}  // namespace esm::ops
