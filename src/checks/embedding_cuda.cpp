#include "kernels/embedding.h"

#include "checks/cases/embedding.h"
#include "checks/harness.h"

namespace esm::checks {
namespace {

constexpr uint8_t kPad = 1, kMask = 32;
constexpr size_t kVocabulary = 33;

struct Pack {
  std::vector<int32_t> cu{0};
  std::vector<uint8_t> is_dummy, tokens;
  std::vector<double> factors;
};

Pack make_pack(const cases::EmbeddingCase& c, int64_t capacity, Random& random) {
  Pack p;
  for (int64_t s = 0; s < c.segments + (c.dummy_rows > 0 ? 1 : 0); ++s) {
    const bool dummy = s == c.segments;
    const int64_t length = dummy ? c.dummy_rows : s == 0 ? c.max_length : 1 + random.below(c.max_length);
    const bool all_masked = s == 1, skewed = s == 2;  // special segments: nothing but <mask>, nearly one token id
    int64_t masked = 0;
    const size_t begin = p.tokens.size();
    for (int64_t i = 0; i < length; ++i) {
      uint8_t token = static_cast<uint8_t>(random.below(33));
      if (random.uniform(0, 1) < 0.12f || all_masked)
        token = kMask;
      else if (skewed && random.below(10) != 0)
        token = 4;
      if (dummy) token = kPad;
      masked += token == kMask;
      p.tokens.push_back(token);
    }
    const double factor = dummy              ? 0.0
                          : !c.token_dropout ? 1.0
                          : masked == length ? 0.0
                                             : 0.88 / (1.0 - static_cast<double>(masked) / static_cast<double>(length));
    for (size_t i = begin; i < p.tokens.size(); ++i)
      p.factors.push_back(p.tokens[i] == kPad || (c.token_dropout && p.tokens[i] == kMask) ? 0.0 : factor);
    p.cu.push_back(static_cast<int32_t>(p.tokens.size()));
    p.is_dummy.push_back(dummy ? 1 : 0);
  }
  p.cu.resize(static_cast<size_t>(capacity + 1), p.cu.back());
  p.is_dummy.resize(static_cast<size_t>(capacity), 1);
  return p;
}

void embed(const cases::EmbeddingCase& c, DType dtype, Random& random, Report& report) {
  const int64_t capacity = c.segments + 40;
  const Pack p = make_pack(c, capacity, random);
  const size_t rows = p.tokens.size(), cols = static_cast<size_t>(c.cols), n = rows * cols;
  const std::string name =
      text("embedding %s %zux%zu%s", name_of(dtype), rows, cols, c.token_dropout ? " token dropout" : "");

  DeviceBuffer<int32_t> cu(p.cu);
  DeviceBuffer<uint8_t> is_dummy(p.is_dummy), tokens(p.tokens);
  DeviceBuffer<float> factors(rows);
  CHECK_CUDA(launch(kernels::EmbeddingFactorsArgs{.segments = capacity,
                                                  .cu_seqlens = cu.get(),
                                                  .is_dummy = is_dummy.get(),
                                                  .tokens = tokens.get(),
                                                  .token_dropout = c.token_dropout,
                                                  .factors = factors.get()},
                    nullptr));
  const std::vector<float> f = factors.download();
  report.close(name + " factors", f, p.factors, [&](size_t i) { return 3e-7 * p.factors[i]; });

  std::vector<float> weight = random.normals(static_cast<int64_t>(kVocabulary * cols));
  for (size_t k = 0; k < cols; ++k) weight[kPad * cols + k] = std::nanf("");  // must not come through
  if (c.token_dropout)
    for (size_t k = 0; k < cols; ++k) weight[kMask * cols + k] = std::nanf("");
  Activations device_weight(dtype, weight), y(dtype, n);
  const kernels::EmbeddingArgs args{.dtype = dtype,
                                    .rows = static_cast<int64_t>(rows),
                                    .cols = c.cols,
                                    .tokens = tokens.get(),
                                    .factors = factors.get(),
                                    .weight = device_weight.get(),
                                    .y = y.get()};
  CHECK_CUDA(launch(args, nullptr));
  std::vector<double> want(n);
  for (size_t i = 0; i < n; ++i)
    if (f[i / cols] != 0) want[i] = static_cast<double>(f[i / cols]) * weight[p.tokens[i / cols] * cols + i % cols];
  report.close(name + " y", y.download(), want,
               [&](size_t i) { return 1.01 * (rounding(dtype) + 0x1p-24) * std::abs(want[i]); });

  std::vector<float> dy = random.normals(static_cast<int64_t>(n), 0.5f, 0.1f);
  Activations device_dy(dtype, dy);
  for (size_t i = 0; i < n; ++i)  // rows of factor 0 must not be read into the sums
    if (f[i / cols] == 0) dy[i] = std::nanf("");
  device_dy.upload(dy);
  const std::vector<float> before = random.normals(static_cast<int64_t>(kVocabulary * cols));
  DeviceBuffer<float> dweight(before);
  DeviceBuffer<uint8_t> workspace(
      kernels::embedding_backward_workspace(static_cast<int64_t>(rows), c.cols, static_cast<int64_t>(kVocabulary)));
  const kernels::EmbeddingBackwardArgs back{.dtype = dtype,
                                            .rows = static_cast<int64_t>(rows),
                                            .cols = c.cols,
                                            .vocabulary = static_cast<int64_t>(kVocabulary),
                                            .tokens = tokens.get(),
                                            .factors = factors.get(),
                                            .dy = device_dy.get(),
                                            .dweight = dweight.get(),
                                            .workspace = workspace.get()};
  CHECK_CUDA(launch(back, nullptr));
  std::vector<double> sums(before.begin(), before.end()), sizes(sums.size());
  for (size_t i = 0; i < n; ++i) {
    if (f[i / cols] == 0) continue;
    const double term = static_cast<double>(f[i / cols]) * dy[i];
    sums[p.tokens[i / cols] * cols + i % cols] += term;
    sizes[p.tokens[i / cols] * cols + i % cols] += std::abs(term);
  }
  const auto got = dweight.download();
  report.close(name + " dweight", got, sums,
               [&](size_t i) { return 2e-6 * sizes[i] + 2e-7 * std::abs(sums[i]) + 1e-7; });
  dweight.upload(before);
  workspace.poison();
  CHECK_CUDA(launch(back, nullptr));
  report.same(name + " dweight twice", got, dweight.download());
}

}  // namespace

void embedding_checks(Random& random, Report& report) {
  for (const DType dtype : {DType::kBF16, DType::kF32})
    for (const cases::EmbeddingCase& c : cases::embedding_cases()) embed(c, dtype, random, report);
}

}  // namespace esm::checks
