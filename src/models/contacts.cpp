#include "models/contacts.h"

#include <cmath>

#include "base/check.h"

namespace esm::models {

namespace {
constexpr uint8_t kEosToken = 2;
}

ContactMaps::ContactMaps(const data::Batch& batch, const ContactHead& head, int64_t heads)
    : tokens_(batch.tokens), bias_(static_cast<double>(head.bias.const_data_ptr<float>()[0])), heads_(heads) {
  const float* weight = head.weight.const_data_ptr<float>();
  weight_.assign(weight, weight + head.weight.numel());
  for (size_t s = 0; s < batch.is_dummy.size(); ++s) {
    Segment segment;
    segment.first = batch.cu_seqlens[s];
    if (batch.is_dummy[s] == 0) segment.length = batch.cu_seqlens[s + 1] - segment.first;
    if (segment.length > 2) segment.sum.assign((segment.length - 2) * (segment.length - 2), 0.0);
    segments_.push_back(std::move(segment));
  }
}

void ContactMaps::add_layer(int64_t layer, const at::Tensor& qkv) {
  const int64_t hidden = qkv.size(1) / 3, head_dim = hidden / heads_;
  const double scale = 1.0 / std::sqrt(static_cast<double>(head_dim));
  for (Segment& segment : segments_) {
    if (segment.length <= 2) continue;
    const at::Tensor rows = qkv.narrow(0, segment.first, segment.length).to(at::kCPU, at::kDouble);
    for (int64_t h = 0; h < heads_; ++h) {
      const at::Tensor q = rows.narrow(1, h * head_dim, head_dim).mul(scale);
      const at::Tensor k = rows.narrow(1, hidden + h * head_dim, head_dim);
      add_map(segment, static_cast<double>(weight_.at(layer * heads_ + h)), at::mm(q, k.t()).softmax(1));
    }
  }
}

void ContactMaps::add_map(Segment& segment, double weight, const at::Tensor& probabilities) {
  const int64_t n = segment.length, m = n - 2;
  const double* p = probabilities.const_data_ptr<double>();
  const auto shown = [&](int64_t i) { return tokens_[segment.first + i] != kEosToken; };
  // map[i, j] = p[i, j] + p[j, i] of inner tokens i + 1, j + 1; symmetric, so its row sums are its column sums.
  std::vector<double> map(m * m), sums(m, 0.0);
  double total = 0;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < m; ++j) {
      const double value = shown(i + 1) && shown(j + 1) ? p[(i + 1) * n + j + 1] + p[(j + 1) * n + i + 1] : 0.0;
      map[i * m + j] = value;
      sums[i] += value;
      total += value;
    }
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < m; ++j) segment.sum[i * m + j] += weight * (map[i * m + j] - sums[i] * sums[j] / total);
}

std::vector<at::Tensor> ContactMaps::probabilities() const {
  std::vector<at::Tensor> result;
  for (const Segment& segment : segments_) {
    if (segment.length <= 2) {
      result.emplace_back();
      continue;
    }
    const int64_t m = segment.length - 2;
    at::Tensor out = at::empty({m, m}, at::kFloat);
    float* to = out.mutable_data_ptr<float>();
    for (int64_t i = 0; i < m * m; ++i) to[i] = static_cast<float>(1.0 / (1.0 + std::exp(-segment.sum[i] - bias_)));
    result.push_back(std::move(out));
  }
  return result;
}

}  // namespace esm::models
