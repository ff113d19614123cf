// Attention backends against FP64: head sizes, lengths around tile borders, dummies, one long sequence; poisoned
// outputs and scratch, leaks between sequences, NaN, CUDA graphs.
#include <c10/core/InferenceMode.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/half.h"
#include "device/properties.h"
#include "device/stream.h"
#include "device/versions.h"
#include "ops/attention_choice.h"
#include "ops/graph_pool_cuda.h"
#include "ops/version.h"
#include "tests/device/attention_reference.h"
#include "tests/device/attention_setup.h"
#include "tests/device/isolated.h"

using namespace esm;
using namespace esm::test;
using ops::AttentionKind;
using ops::AttentionSizes;

namespace {

struct Error {
  double worst = 0;     // of |error| / bound
  double relative = 0;  // L2
};

/// Elementwise: one rounding of the result, and roundings of intermediates that scale with `magnitude`.
Error compare(const std::vector<double>& got, const std::vector<double>& want, const std::vector<double>& magnitude,
              double unit) {
  Error error;
  double off = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double difference = std::abs(got[i] - want[i]);
    const double ratio = difference / (unit * (std::abs(want[i]) + magnitude[i]) + 1e-30);
    if (std::isnan(ratio)) return {INFINITY, INFINITY};
    error.worst = std::max(error.worst, ratio);
    off += difference * difference;
    // Where the true value cancels to nothing (one residue: dq = dk = 0) a part in a thousand of its terms counts.
    norm += std::max(want[i] * want[i], 1e-6 * magnitude[i] * magnitude[i]);
  }
  error.relative = std::sqrt(off / std::max(norm, 1e-300));
  return error;
}

struct Bounds {
  double unit, out_relative, gradient_relative, lse_absolute;
};
Bounds bounds_of(DType dtype) {
  // BF16: half a unit in the last place is 2^-9; P and dS are rounded before the second product.
  if (dtype == DType::kBF16) return {0x1p-8, 4e-3, 1e-2, 2e-4};
  return {0x1p-18, 5e-6, 1e-5, 2e-5};
}

struct Problem {
  AttentionSizes sizes;
  std::vector<int64_t> lengths;
  DType dtype = DType::kBF16;
};

/// Every part of dqkv by itself, so that a bad dk is not hidden by a large dv.
std::vector<double> part_of(const std::vector<double>& dqkv, int part, int64_t hidden) {
  std::vector<double> result;
  result.reserve(dqkv.size() / 3);
  for (size_t row = 0; row < dqkv.size(); row += static_cast<size_t>(3 * hidden)) {
    const auto begin = dqkv.begin() + static_cast<ptrdiff_t>(row) + part * hidden;
    result.insert(result.end(), begin, begin + hidden);
  }
  return result;
}

class Runner {
 public:
  Runner(AttentionKind kind, const Problem& problem, cudaStream_t stream)
      : problem_(problem),
        stream_(stream),
        backend_(ops::make_attention_backend(kind, problem.sizes)),
        buffers(problem.sizes, problem.dtype, backend_->workspace_bytes()) {
    buffers.forward.stream = buffers.backward.stream = stream;
    buffers.set_sequences(cumulated(problem.lengths), stream);
    token_major_lse_ = kind == AttentionKind::kCudnn;
  }

  void fill(uint64_t seed) {
    buffers.qkv.fill_normal(seed, 1.0f, stream_);
    buffers.dout.fill_normal(seed + 1, 1.0f, stream_);
  }
  void poison() {
    for (const DeviceArray* x : {&buffers.out, &buffers.lse, &buffers.dqkv, &buffers.workspace}) x->poison(stream_);
  }
  void queue() {
    backend_->set_batch(buffers.cu_seqlens, stream_);
    backend_->forward(buffers.forward);
    backend_->backward(buffers.backward);
  }
  void run() {
    poison();
    queue();
    ESM_CUDA(cudaStreamSynchronize(stream_));
  }

  /// [T, H] whatever the backend's order.
  std::vector<double> lse() const {
    const std::vector<double> raw = buffers.lse.values(stream_);
    if (token_major_lse_) return raw;
    const auto tokens = static_cast<size_t>(problem_.sizes.tokens), heads = static_cast<size_t>(problem_.sizes.heads);
    std::vector<double> result(raw.size());
    for (size_t t = 0; t < tokens; ++t)
      for (size_t h = 0; h < heads; ++h) result[t * heads + h] = raw[h * tokens + t];
    return result;
  }
  bool guards_intact() const {
    for (const DeviceArray* x :
         {&buffers.qkv, &buffers.out, &buffers.dout, &buffers.dqkv, &buffers.lse, &buffers.cu, &buffers.workspace})
      if (!x->guard_intact(stream_)) return false;
    return true;
  }
  AttentionReference reference(const std::vector<int64_t>& lengths) const {
    return attention_reference({.dtype = problem_.dtype,
                                .qkv = buffers.qkv.get(),
                                .dout = buffers.dout.get(),
                                .cu_seqlens = cumulated(lengths),
                                .heads = problem_.sizes.heads,
                                .head_dim = problem_.sizes.head_dim});
  }

  struct Result {
    bool ok = false;
    std::string detail = {};
  };
  Result check(const AttentionReference& want, double gradient_slack = 1) const {
    const Bounds bounds = bounds_of(problem_.dtype);
    const int64_t hidden = problem_.sizes.heads * problem_.sizes.head_dim;
    const Error out = compare(buffers.out.values(stream_), want.out, want.out_magnitude, bounds.unit);
    double lse_error = 0;
    const std::vector<double> got_lse = lse();
    for (size_t i = 0; i < got_lse.size(); ++i) {
      const double error = std::abs(got_lse[i] - want.lse[i]) / (1 + std::abs(want.lse[i]));
      lse_error = std::isnan(error) ? INFINITY : std::max(lse_error, error);
    }
    Result result{.ok = out.worst <= 1 && out.relative <= bounds.out_relative && lse_error <= bounds.lse_absolute};
    result.detail = fmt::format("o {:.2f} {:.1e}, lse {:.0e}", out.worst, out.relative, lse_error);
    const std::vector<double> got = buffers.dqkv.values(stream_);
    const char* names[] = {"dq", "dk", "dv"};
    for (int part = 0; part < 3; ++part) {
      const Error e = compare(part_of(got, part, hidden), part_of(want.dqkv, part, hidden),
                              part_of(want.dqkv_magnitude, part, hidden), bounds.unit);
      result.ok = result.ok && e.worst <= 1 && e.relative <= gradient_slack * bounds.gradient_relative;
      result.detail += fmt::format(", {} {:.2f} {:.1e}", names[part], e.worst, e.relative);
    }
    if (!guards_intact()) {
      result.ok = false;
      result.detail += ", WROTE BEHIND A BUFFER";
    }
    return result;
  }

 private:
  const Problem& problem_;
  cudaStream_t stream_;
  std::unique_ptr<ops::AttentionBackend> backend_;
  bool token_major_lse_ = false;

 public:
  AttentionBuffers buffers;
};

const std::vector<int64_t> kBorders = {1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 960, 1024, 192, 31};

Problem border_problem(int64_t head_dim) {
  Problem p{.sizes = {.tokens = 3072, .heads = 3, .head_dim = head_dim, .capacity = 64, .max_seqlen = 1024},
            .lengths = kBorders};
  int64_t used = 0;
  for (const int64_t length : p.lengths) used += length;
  p.lengths.push_back(p.sizes.tokens - used);  // the dummy at the end
  return p;
}

std::string label(AttentionKind kind, const Problem& p, const std::string& what) {
  return fmt::format("{} {} K{} {}{}", ops::attention_kind_name(kind), dtype_name(p.dtype), p.sizes.head_dim, what,
                     p.sizes.deterministic ? " det" : "");
}

void check_problem(AttentionKind kind, const Problem& problem, const std::string& what, uint64_t seed, Report& report,
                   cudaStream_t stream) {
  Runner runner(kind, problem, stream);
  runner.fill(seed);
  runner.run();
  Runner::Result result = runner.check(runner.reference(problem.lengths));
  const auto out = runner.buffers.out.download(stream), lse = runner.buffers.lse.download(stream),
             dqkv = runner.buffers.dqkv.download(stream);
  runner.run();
  if (runner.buffers.out.download(stream) != out || runner.buffers.lse.download(stream) != lse) {
    result.ok = false;
    result.detail += ", second forward differs";
  }
  const bool equal = runner.buffers.dqkv.download(stream) == dqkv;
  result.detail += equal ? ", gradient repeats" : ", gradient varies";
  const bool must_repeat = problem.sizes.deterministic || kind == AttentionKind::kSimple;
  report.add(label(kind, problem, what), result.ok && (equal || !must_repeat), result.detail);
}

/// A pack border that is off by one must be noticed.
void check_planted_error(AttentionKind kind, DType dtype, uint64_t seed, Report& report, cudaStream_t stream) {
  Problem problem = border_problem(64);
  problem.dtype = dtype;
  Runner runner(kind, problem, stream);
  runner.fill(seed);
  runner.run();
  std::vector<int64_t> wrong = problem.lengths;
  wrong[10] -= 1;
  wrong[11] += 1;
  const Runner::Result result = runner.check(runner.reference(wrong));
  report.add(label(kind, problem, "planted border error is found"), !result.ok, result.detail);
}

/// Rewrites every second sequence of qkv and dout; the others' results must not change by a bit.
void check_leaks(AttentionKind kind, const Problem& problem, uint64_t seed, Report& report, cudaStream_t stream) {
  Runner runner(kind, problem, stream);
  runner.fill(seed);
  runner.run();
  const std::vector<int32_t> cu = cumulated(problem.lengths);
  const int64_t hidden_bytes = problem.sizes.heads * problem.sizes.head_dim * size_of(problem.dtype);
  const auto kept = [&](const DeviceArray& array, int64_t row_bytes) {
    const std::vector<std::byte> all = array.download(stream);
    std::vector<std::byte> rows;
    for (size_t s = 0; s + 1 < cu.size(); s += 2)
      rows.insert(rows.end(), all.begin() + cu[s] * row_bytes, all.begin() + cu[s + 1] * row_bytes);
    return rows;
  };
  const auto all_kept = [&] {
    return std::vector<std::vector<std::byte>>{kept(runner.buffers.out, hidden_bytes),
                                               kept(runner.buffers.dqkv, 3 * hidden_bytes)};
  };
  const auto overwrite = [&](bool nan) {
    for (size_t s = 1; s + 1 < cu.size(); s += 2)
      for (const auto& [array, row_bytes] :
           {std::pair<const DeviceArray*, int64_t>{&runner.buffers.qkv, 3 * hidden_bytes},
            {&runner.buffers.dout, hidden_bytes}}) {
        auto* rows = array->as<std::byte>() + cu[s] * row_bytes;
        const int64_t bytes = (cu[s + 1] - cu[s]) * row_bytes;
        if (nan)
          ESM_CUDA(cudaMemsetAsync(rows, 0xff, static_cast<size_t>(bytes), stream));
        else
          fill_normal(rows, problem.dtype, bytes / size_of(problem.dtype), seed + 1000 + s, 3.0f, stream);
      }
  };
  const auto before = all_kept();
  overwrite(false);
  runner.run();
  const auto after = all_kept();
  const bool forward_equal = before[0] == after[0], backward_equal = before[1] == after[1];
  const bool must_repeat = problem.sizes.deterministic || kind == AttentionKind::kSimple;
  report.add(label(kind, problem, "other sequences change no bit"), forward_equal && (backward_equal || !must_repeat),
             fmt::format("forward {}, backward {}", forward_equal ? "equal" : "DIFFERS",
                         backward_equal ? "equal"
                         : must_repeat  ? "DIFFERS"
                                        : "varies (not deterministic)"));
  overwrite(true);
  runner.run();
  const auto poisoned = all_kept();
  const auto has_nan = [&](const std::vector<std::byte>& bytes) {
    for (size_t i = 0; i < bytes.size(); i += static_cast<size_t>(size_of(problem.dtype))) {
      uint32_t bits = 0;
      std::memcpy(reinterpret_cast<char*>(&bits) + (problem.dtype == DType::kBF16 ? 2 : 0), bytes.data() + i,
                  static_cast<size_t>(size_of(problem.dtype)));
      if ((bits & 0x7fffffffu) > 0x7f800000u) return true;
    }
    return false;
  };
  report.note(label(kind, problem, "NaN in other sequences"),
              fmt::format("forward {}, backward {}", has_nan(poisoned[0]) ? "SPREADS" : "stays there",
                          has_nan(poisoned[1]) ? "SPREADS" : "stays there"));
}

/// All scores far below zero: log-sum-exp down to -200. cuDNN before 9.26 is known to give NaN where it masks a tail of
/// 64 keys too late (lengths of 64 modulo 128; cudnn-frontend pull request 628, PyTorch issue 196678), so for cudnn a
/// failure is a note that names the lengths.
void check_negative_scores(AttentionKind kind, uint64_t seed, Report& report, cudaStream_t stream) {
  const Problem problem{.sizes = {.tokens = 2560, .heads = 2, .head_dim = 64, .capacity = 64, .max_seqlen = 1024},
                        .lengths = {64, 192, 960, 1000, 100, 128, 116}};
  Runner runner(kind, problem, stream);
  runner.fill(seed);
  std::vector<uint16_t> host(static_cast<size_t>(runner.buffers.qkv.size()));
  std::memcpy(host.data(), runner.buffers.qkv.download(stream).data(), host.size() * 2);
  const size_t hidden = 128;
  for (size_t row = 0; row < host.size() / (3 * hidden); ++row)
    for (size_t c = 0; c < hidden; ++c) {
      const auto shift = [&](size_t part, float by) {
        uint16_t& x = host[(3 * row + part) * hidden + c];
        x = bf16_from_float(float_from_bf16(x) * 0.25f + by);
      };
      shift(0, 5.0f);
      shift(1, -5.0f);
    }
  runner.buffers.qkv.upload(host.data(), stream);
  runner.run();
  const AttentionReference want = runner.reference(problem.lengths);
  // dS sums to zero over keys that are all near -5: rounding weighs ten times more than in dS k of centred keys.
  const Runner::Result result = runner.check(want, 10);
  const double lowest = *std::min_element(want.lse.begin(), want.lse.end());
  std::string detail = fmt::format("lowest lse {:.0f}: {}", lowest, result.detail);
  const std::vector<double> dqkv = runner.buffers.dqkv.values(stream);
  const auto* next = dqkv.data();
  for (const int64_t length : problem.lengths) {
    const auto* end = next + length * 3 * static_cast<int64_t>(hidden);
    if (!std::all_of(next, end, [](double x) { return std::isfinite(x); }))
      detail += fmt::format(", not finite: length {}", length);
    next = end;
  }
  if (kind == AttentionKind::kCudnn && !result.ok)
    report.note(label(kind, problem, "very negative scores: KNOWN BUG"), detail);
  else
    report.add(label(kind, problem, "very negative scores"), result.ok, detail);
}

/// One graph, replayed on another batch with other borders.
void check_graph(AttentionKind kind, uint64_t seed, Report& report, cudaStream_t stream) {
  const Problem first = border_problem(64);
  const Problem second{.sizes = first.sizes, .lengths = {1000, 24, 500, 524, 1, 1023}};
  Runner runner(kind, first, stream);
  runner.fill(seed);
  runner.run();  // warm-up
  ops::GraphPool pool;
  const auto capture = [&] {
    const ops::GraphPool::Scope scope(pool, stream);
    return device::Graph::capture(stream, [&] { runner.queue(); });
  };
  const device::Graph graph = capture();
  bool ok = true;
  std::string detail = fmt::format("{} nodes; ", graph.nodes());
  for (const Problem* problem : {&first, &second}) {
    runner.buffers.set_sequences(cumulated(problem->lengths), stream);
    runner.fill(seed + 5);
    runner.poison();
    graph.launch(stream);
    ESM_CUDA(cudaStreamSynchronize(stream));
    const Runner::Result result = runner.check(runner.reference(problem->lengths));
    const auto out = runner.buffers.out.download(stream);
    runner.run();
    const bool equal = runner.buffers.out.download(stream) == out;
    ok = ok && result.ok && equal;
    detail += result.detail + (equal ? ", forward equals the eager one; " : ", FORWARD DIFFERS; ");
  }
  report.add(label(kind, first, "in a CUDA graph, two batches"), ok, detail);
}

/// The oracle itself, against plain loops on the host.
void check_oracle(uint64_t seed, Report& report, cudaStream_t stream) {
  Problem problem{.sizes = {.tokens = 128, .heads = 2, .head_dim = 24, .capacity = 8, .max_seqlen = 128},
                  .lengths = {1, 40, 65, 22}};
  Runner runner(AttentionKind::kSimple, problem, stream);
  runner.fill(seed);
  const AttentionReference got = runner.reference(problem.lengths);
  const std::vector<double> x = runner.buffers.qkv.values(stream), g = runner.buffers.dout.values(stream);
  const std::vector<int32_t> cu = cumulated(problem.lengths);
  const int64_t d = 24, heads = 2, hidden = d * heads;
  const double scale = 1 / std::sqrt(24.0);
  std::vector<double> out(g.size()), dqkv(x.size());
  for (size_t s = 0; s + 1 < cu.size(); ++s)
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t n = cu[s + 1] - cu[s], base = cu[s];
      const auto in = [&](int64_t row, int64_t part, int64_t c) {
        return static_cast<size_t>(((base + row) * 3 + part) * hidden + h * d + c);
      };
      const auto narrow = [&](int64_t row, int64_t c) {
        return static_cast<size_t>((base + row) * hidden + h * d + c);
      };
      for (int64_t i = 0; i < n; ++i) {
        std::vector<double> p(static_cast<size_t>(n)), dp(p.size());
        double sum = 0, delta = 0;
        for (int64_t j = 0; j < n; ++j) {
          double score = 0;
          for (int64_t c = 0; c < d; ++c) {
            score += x[in(i, 0, c)] * x[in(j, 1, c)];
            dp[static_cast<size_t>(j)] += g[narrow(i, c)] * x[in(j, 2, c)];
          }
          sum += p[static_cast<size_t>(j)] = std::exp(scale * score);
        }
        for (size_t j = 0; j < p.size(); ++j) delta += (p[j] /= sum) * dp[j];
        for (int64_t j = 0; j < n; ++j)
          for (int64_t c = 0; c < d; ++c) {
            const double weight = p[static_cast<size_t>(j)], ds = scale * weight * (dp[static_cast<size_t>(j)] - delta);
            out[narrow(i, c)] += weight * x[in(j, 2, c)];
            dqkv[in(i, 0, c)] += ds * x[in(j, 1, c)];
            dqkv[in(j, 1, c)] += ds * x[in(i, 0, c)];
            dqkv[in(j, 2, c)] += weight * g[narrow(i, c)];
          }
      }
    }
  const double off_out = compare(got.out, out, out, 1).relative, off = compare(got.dqkv, dqkv, dqkv, 1).relative;
  report.add("FP64 oracle against host loops", off_out < 1e-12 && off < 1e-12,
             fmt::format("out {:.0e}, dqkv {:.0e}", off_out, off));
}

/// The choice at the start of a run: times both fast backends, leaves no memory behind.
void check_choice(Report& report, cudaStream_t stream) {
  const AttentionSizes sizes{.tokens = 16384, .heads = 20, .head_dim = 64, .capacity = 128, .max_seqlen = 1024};
  const auto choose = [&](const AttentionSizes& of, at::ScalarType type) {
    return ops::choose_attention(of, type, stream);
  };
  choose(sizes, at::kBFloat16);  // libraries load
  const int64_t free_before = device::device_memory().free_bytes;
  const ops::AttentionChoice choice = choose(sizes, at::kBFloat16);
  const int64_t kept = free_before - device::device_memory().free_bytes;
  bool timed = choice.timings.size() == 2, fastest = true;
  for (const ops::AttentionTiming& t : choice.timings) {
    timed = timed && t.microseconds > 0 && t.refusal.empty();
    for (const ops::AttentionTiming& other : choice.timings)
      fastest = fastest && (t.kind != choice.kind || t.microseconds <= 1.02 * other.microseconds);
  }
  report.add("choice of a backend is timed", timed && fastest && kept < (64 << 20),
             fmt::format("{}; {} MiB kept", choice.text(), kept >> 20));
  AttentionSizes wide = sizes;
  wide.head_dim = 192;
  const ops::AttentionChoice other = choose(wide, at::kBFloat16);
  report.add("choice without cudnn", other.kind == AttentionKind::kFlash2 && other.timings.size() == 2, other.text());
  const ops::AttentionChoice exact = choose(sizes, at::kFloat);
  report.add("choice in FP32", exact.kind == AttentionKind::kSimple, exact.text());
}

void add_parts(AttentionKind kind, std::vector<Part>& parts, uint64_t seed) {
  const std::string name(ops::attention_kind_name(kind));
  const auto add = [&](const std::string& what, auto check) {
    parts.push_back(
        {fmt::format("{} {}", name, what),
         [=, s = seed + 100 * parts.size()](Report& report, cudaStream_t stream) { check(s, report, stream); }});
  };
  const auto problem = [&](const Problem& p, const char* what) {
    add(fmt::format("K{} {}", p.sizes.head_dim, what),
        [=](uint64_t s, Report& report, cudaStream_t stream) { check_problem(kind, p, what, s, report, stream); });
  };
  const auto leaks = [&](const Problem& p) {
    add(fmt::format("K{} leaks", p.sizes.head_dim),
        [=](uint64_t s, Report& report, cudaStream_t stream) { check_leaks(kind, p, s, report, stream); });
  };
  for (const int64_t head_dim : {16, 24, 32, 64, 80, 96, 128, 192, 256})
    if (head_dim <= ops::attention_support(kind).max_head_dim) problem(border_problem(head_dim), "borders");
  for (const int64_t head_dim : {24, 64}) {
    Problem p = border_problem(head_dim);
    p.sizes.deterministic = true;
    problem(p, "borders");
    leaks(p);
  }
  leaks(border_problem(64));
  Problem p{.sizes = {.tokens = 8192, .heads = 2, .head_dim = 64, .capacity = 64, .max_seqlen = 8000},
            .lengths = {8000, 192}};
  problem(p, "one of 8,000");
  p.sizes.head_dim = 24;
  problem(p, "one of 8,000");
  p = {.sizes = {.tokens = 1024, .heads = 2, .head_dim = 32, .capacity = 64, .max_seqlen = 1024}, .lengths = {1024}};
  problem(p, "one sequence");
  p.sizes.max_seqlen = 4096;
  problem(p, "a loose bound");
  p = {.sizes = {.tokens = 1024, .heads = 2, .head_dim = 64, .capacity = 1024, .max_seqlen = 64},
       .lengths = std::vector<int64_t>(1024, 1)};
  problem(p, "1,024 of one residue");
  p = {.sizes = {.tokens = 4096, .heads = 2, .head_dim = 64, .capacity = 64, .max_seqlen = 1024},
       .lengths = {960, 960, 960, 193, 1023}};
  problem(p, "960s");
  add("negative scores",
      [=](uint64_t s, Report& report, cudaStream_t stream) { check_negative_scores(kind, s, report, stream); });
  add("planted error", [=](uint64_t s, Report& report, cudaStream_t stream) {
    check_planted_error(kind, DType::kBF16, s, report, stream);
  });
  add("graph", [=](uint64_t s, Report& report, cudaStream_t stream) { check_graph(kind, s, report, stream); });
}

std::vector<Part> make_parts(uint64_t seed) {
  std::vector<Part> parts;
  parts.push_back({"oracle", [=](Report& report, cudaStream_t stream) { check_oracle(seed, report, stream); }});
  Problem wide = border_problem(64);
  wide.dtype = DType::kF32;
  for (const int64_t head_dim : {16, 24, 64, 128, 256}) {
    wide.sizes.head_dim = head_dim;
    parts.push_back({fmt::format("simple F32 K{}", head_dim), [=](Report& report, cudaStream_t stream) {
                       check_problem(AttentionKind::kSimple, wide, "borders", seed + 10, report, stream);
                     }});
  }
  parts.push_back({"simple F32 planted error", [=](Report& report, cudaStream_t stream) {
                     check_planted_error(AttentionKind::kSimple, DType::kF32, seed, report, stream);
                   }});
  for (const AttentionKind kind : {AttentionKind::kSimple, AttentionKind::kFlash2, AttentionKind::kCudnn})
    add_parts(kind, parts, seed);
  parts.push_back({"choice", check_choice});
  return parts;
}

}  // namespace

int main(int, char** argv) {
  if (device::cuda_device_count() == 0) {
    fmt::print("skipped: no CUDA device\n");
    return 77;
  }
  const uint64_t seed = run_seed();
  if (!in_child()) {
    const device::Properties props = device::properties(0);
    fmt::print("{} sm_{}, cuDNN {}, seed {}\n", props.name, props.compute_capability, ops::cudnn_version(), seed);
    fmt::print("per result: worst error / bound, relative L2\n");
  }
  try {
    const c10::InferenceMode no_autograd;
    return run_isolated("test_attention", argv, make_parts(seed), seed);
  } catch (const std::exception& error) {
    fmt::print("test_attention: {}\n", error.what());
    return 1;
  }
}
