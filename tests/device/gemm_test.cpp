// cuBLASLt products against FP64 on the host: three roles, FP32 and BF16, bias, residual, accumulation, odd shapes;
// plans, plan file, graphs, errors.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/files.h"
#include "base/half.h"
#include "device/gemm.h"
#include "device/gemm_plan_file.h"
#include "device/properties.h"
#include "device/stream.h"
#include "device/versions.h"
#include "tests/device/device_array.h"
#include "tests/device/report.h"

using namespace esm;
using namespace esm::test;
using device::GemmContext;
using device::GemmDesc;
using device::GemmEpilogue;
using device::GemmPlanInfo;

namespace {

struct Operands {
  DeviceArray a, b, c = {}, d, bias = {};  // c: separate C or the D before; empty without accumulate
};

enum class CMode { kNone, kSeparate, kInPlace };

struct Case {
  std::string name;
  GemmDesc desc;
  CMode c = CMode::kNone;
  bool may_lack_kernel = false;  // an epilogue that cuBLASLt need not have
};

/// An element with what its rounding errors scale with.
struct Expected {
  double value = 0;
  double terms = 0;       // sum of |a b|, |bias|, |c|: of the FP32 additions
  double before_add = 0;  // |AB| + |bias| + |C|: of a sum that is stored before the last addition; 0: nothing to add
};

struct Reference {
  std::vector<Expected> d, bias_gradient;
};

int64_t a_elements(const GemmDesc& g) { return g.lda * (g.transpose_a ? g.m : g.k); }
int64_t b_elements(const GemmDesc& g) { return g.ldb * (g.transpose_b ? g.k : g.n); }

Operands make_operands(const Case& test, uint64_t seed, cudaStream_t stream) {
  const GemmDesc& g = test.desc;
  Operands o{.a = DeviceArray(g.operands, a_elements(g)),
             .b = DeviceArray(g.operands, b_elements(g)),
             .d = DeviceArray(g.d, g.ldd * g.n)};
  o.a.fill_normal(seed, 1.0f, stream);
  o.b.fill_normal(seed + 1, 1.0f, stream);
  if (test.c != CMode::kNone) {
    o.c = DeviceArray(g.d, g.ldd * g.n);
    o.c.fill_normal(seed + 2, 3.0f, stream);
  }
  if (g.epilogue == GemmEpilogue::kBias) {
    o.bias = DeviceArray(g.d, g.m);
    o.bias.fill_normal(seed + 3, 3.0f, stream);
  } else if (g.epilogue == GemmEpilogue::kBiasGradient) {
    o.bias = DeviceArray(g.d, g.n);
  }
  return o;
}

void run(GemmContext& gemm, const Case& test, const Operands& o, cudaStream_t stream) {
  o.d.poison(stream);
  if (test.c == CMode::kInPlace)
    ESM_CUDA(cudaMemcpyAsync(o.d.get(), o.c.get(), static_cast<size_t>(o.c.bytes()), cudaMemcpyDeviceToDevice, stream));
  const bool bias = test.desc.epilogue == GemmEpilogue::kBias;
  const bool gradient = test.desc.epilogue == GemmEpilogue::kBiasGradient;
  if (gradient) o.bias.poison(stream);
  gemm.run(test.desc,
           {.a = o.a.get(),
            .b = o.b.get(),
            .c = test.c == CMode::kSeparate ? o.c.get() : nullptr,
            .d = o.d.get(),
            .bias = bias ? o.bias.get() : nullptr,
            .bias_gradient = gradient ? o.bias.get() : nullptr},
           stream);
}

/// op(X) as rows over k, contiguous.
std::vector<double> rows_over_k(const std::vector<double>& x, int64_t rows, int64_t k, int64_t ld,
                                bool k_is_contiguous) {
  std::vector<double> result(static_cast<size_t>(rows * k));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < k; ++i)
      result[static_cast<size_t>(r * k + i)] = x[static_cast<size_t>(k_is_contiguous ? r * ld + i : i * ld + r)];
  return result;
}

/// `k_used` < k plants an error: the last products are left out.
Reference reference(const Case& test, const Operands& o, cudaStream_t stream, int64_t k_used) {
  const GemmDesc& g = test.desc;
  const std::vector<double> a = rows_over_k(o.a.values(stream), g.m, g.k, g.lda, g.transpose_a);
  const std::vector<double> b = rows_over_k(o.b.values(stream), g.n, g.k, g.ldb, !g.transpose_b);
  const std::vector<double> c = test.c == CMode::kNone ? std::vector<double>() : o.c.values(stream);
  const std::vector<double> bias = g.epilogue == GemmEpilogue::kBias ? o.bias.values(stream) : std::vector<double>();
  Reference r;
  r.d.resize(static_cast<size_t>(g.m * g.n));
  for (int64_t j = 0; j < g.n; ++j)
    for (int64_t i = 0; i < g.m; ++i) {
      const double *x = a.data() + i * g.k, *y = b.data() + j * g.k;
      Expected& e = r.d[static_cast<size_t>(j * g.m + i)];
      for (int64_t l = 0; l < k_used; ++l) {
        const double product = x[l] * y[l];
        e.value += product;
        e.terms += std::abs(product);
      }
      const double b_i = bias.empty() ? 0.0 : bias[static_cast<size_t>(i)];
      const double c_ij = c.empty() ? 0.0 : c[static_cast<size_t>(j * g.ldd + i)];
      if (!bias.empty() || !c.empty()) e.before_add = std::abs(e.value) + std::abs(b_i) + std::abs(c_ij);
      e.value += b_i + c_ij;
      e.terms += std::abs(b_i) + std::abs(c_ij);
    }
  if (g.epilogue == GemmEpilogue::kBiasGradient)
    for (int64_t j = 0; j < g.n; ++j) {
      Expected e;
      for (int64_t l = 0; l < k_used; ++l) {
        e.value += b[static_cast<size_t>(j * g.k + l)];
        e.terms += std::abs(b[static_cast<size_t>(j * g.k + l)]);
      }
      r.bias_gradient.push_back(e);
    }
  return r;
}

struct Error {
  double worst = 0;     // of |error| / bound, elementwise; infinite for NaN
  double relative = 0;  // L2
};

/// Elementwise, with u = 2^-8 for BF16: some cuBLASLt kernels store A B, A B + bias or A B + C in D's type before they
/// add the rest. That one sum is at most |AB| + |bias| + |C| =: M, its rounding u M, and the last one u (|D| + u M),
/// together
///   u |D| + u (1 + u) M,
/// whatever cancels in D. A plain product has no such sum (M = 0) and is rounded once. To that the FP32 sum of k terms
/// in chunks of 16, as tensor cores add.
Error compare(const std::vector<double>& got, const std::vector<Expected>& want, DType dtype, int64_t k) {
  const double u = dtype == DType::kBF16 ? 0x1p-8 : 0x1p-22;
  const double sum_rounding = (16 + static_cast<double>(k) / 16) * 0x1p-23;
  Error error;
  double off = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const Expected& e = want[i];
    const double difference = std::abs(got[i] - e.value);
    const double bound = u * (std::abs(e.value) + (1 + u) * e.before_add) + sum_rounding * e.terms + 1e-30;
    if (std::isnan(difference)) return {INFINITY, INFINITY};
    error.worst = std::max(error.worst, difference / bound);
    off += difference * difference;
    norm += e.value * e.value;
  }
  error.relative = std::sqrt(off / std::max(norm, 1e-300));
  return error;
}

/// Of the L2 error. BF16: rounding x = m 2^e, 1 <= m < 2, is off by 2^(e-8)/sqrt(3), and for normal values the mean of
/// m^-2 under the weight x^2 is 0.541: r = 2^-8 sqrt(0.541/3) = 1.66e-3. A stored sum before an addition doubles the
/// variance at most (its own is no larger than the result's: the terms are independent). A tenth more for errors that
/// are not quite uniform, and four standard deviations of a mean over n elements. Two stored sums (sqrt(3) r) and
/// partial sums in BF16 are above it, except for the smallest n.
double relative_bound(const GemmDesc& desc) {
  if (desc.d == DType::kF32) return 2e-6 * std::max(1.0, std::sqrt(static_cast<double>(desc.k) / 256));
  const bool adds = desc.accumulate || desc.epilogue == GemmEpilogue::kBias;
  return 1.66e-3 * (adds ? std::sqrt(2.0) : 1.0) * (1.1 + 3.5 / std::sqrt(static_cast<double>(desc.m * desc.n)));
}

bool within(const Error& error, const GemmDesc& desc) {
  return error.worst <= 1 && error.relative <= relative_bound(desc);
}

std::vector<Case> make_cases() {
  std::vector<Case> cases;
  const auto add = [&](const std::string& role, const GemmDesc& desc, CMode c, bool may_lack = false) {
    const char* mode = c == CMode::kNone ? "" : c == CMode::kSeparate ? " +C" : " +=";
    const char* epilogue = desc.epilogue == GemmEpilogue::kBias           ? " bias"
                           : desc.epilogue == GemmEpilogue::kBiasGradient ? " dbias"
                                                                          : "";
    cases.push_back({fmt::format("{} {}->{} m{} n{} k{}{}{}", role, dtype_name(desc.operands), dtype_name(desc.d),
                                 desc.m, desc.n, desc.k, epilogue, mode),
                     desc, c, may_lack});
  };
  struct Size {
    int64_t tokens, out, in;
  };
  const std::vector<Size> sizes = {{128, 960, 320}, {256, 64, 320}, {257, 320, 480}, {1000, 64, 72}, {96, 33, 40},
                                   {384, 480, 200}, {7, 64, 24},    {1, 64, 64},     {129, 37, 35}};
  for (const DType in : {DType::kBF16, DType::kF32})
    for (const Size& s : sizes) {
      using device::LinearDgradGemm, device::LinearForwardGemm, device::LinearWgradGemm;
      const LinearForwardGemm forward{.tokens = s.tokens, .out = s.out, .in = s.in, .operands = in, .y = in};
      LinearForwardGemm biased = forward, residual = forward;
      biased.bias = true;
      residual.bias = residual.residual = true;
      add("forward", forward.desc(), CMode::kNone);
      add("forward", biased.desc(), CMode::kNone);
      add("forward", residual.desc(), CMode::kSeparate);
      add("forward", residual.desc(), CMode::kInPlace);
      LinearForwardGemm wide = biased;
      wide.y = DType::kF32;
      if (in == DType::kBF16) add("forward", wide.desc(), CMode::kNone);
      const LinearDgradGemm dgrad{.tokens = s.tokens, .out = s.out, .in = s.in, .operands = in, .dx = in};
      add("dgrad", dgrad.desc(), CMode::kNone);
      LinearWgradGemm wgrad{.tokens = s.tokens, .out = s.out, .in = s.in, .operands = in};
      add("wgrad", wgrad.desc(), CMode::kInPlace);
      wgrad.dbias = true;
      add("wgrad", wgrad.desc(), CMode::kInPlace, true);
      wgrad.accumulate = false;
      add("wgrad", wgrad.desc(), CMode::kNone, true);
      wgrad.dbias = false;
      add("wgrad", wgrad.desc(), CMode::kNone);
      if (in == DType::kBF16) {
        wgrad.dweight = DType::kBF16;
        add("wgrad", wgrad.desc(), CMode::kNone);
      }
    }
  // The longest sum of a step: every token of the batch.
  add("wgrad", device::LinearWgradGemm{.tokens = 65536, .out = 64, .in = 64}.desc(), CMode::kInPlace);
  return cases;
}

void check_case(GemmContext& gemm, const Case& test, uint64_t seed, Report& report, cudaStream_t stream) {
  if (!gemm.supported(test.desc)) {
    if (test.may_lack_kernel)
      report.note(test.name, "cuBLASLt has no kernel");
    else
      report.add(test.name, false, "cuBLASLt has no kernel");
    return;
  }
  const Operands o = make_operands(test, seed, stream);
  run(gemm, test, o, stream);
  const std::vector<double> got = o.d.values(stream);
  const std::vector<std::byte> bits = o.d.download(stream);
  const Reference want = reference(test, o, stream, test.desc.k);
  Error error = compare(got, want.d, test.desc.d, test.desc.k);
  bool ok = within(error, test.desc) && o.d.guard_intact(stream);
  std::string detail = fmt::format("worst/bound {:.3f}, rel L2 {:.2e} (<= {:.1e})", error.worst, error.relative,
                                   relative_bound(test.desc));
  if (test.desc.epilogue == GemmEpilogue::kBiasGradient) {
    error = compare(o.bias.values(stream), want.bias_gradient, test.desc.d, test.desc.k);
    ok = ok && error.worst <= 1 && o.bias.guard_intact(stream);
    detail += fmt::format("; dbias worst/bound {:.3f}", error.worst);
  }
  run(gemm, test, o, stream);
  if (o.d.download(stream) != bits) {
    ok = false;
    detail += "; second run differs";
  }
  report.add(test.name, ok, detail);
}

/// The bounds must notice one missing product, also where they allow for a stored sum.
void check_planted_error(GemmContext& gemm, DType in, CMode c, uint64_t seed, Report& report, cudaStream_t stream) {
  const bool adds = c != CMode::kNone;
  const device::LinearForwardGemm forward{
      .tokens = 64, .out = 64, .in = 320, .operands = in, .y = in, .bias = adds, .residual = adds};
  const Case test{"planted", forward.desc(), c};
  const Operands o = make_operands(test, seed, stream);
  run(gemm, test, o, stream);
  const Reference wrong = reference(test, o, stream, test.desc.k - 1);
  const Error error = compare(o.d.values(stream), wrong.d, test.desc.d, test.desc.k);
  report.add(fmt::format("planted error in {}{} is found", dtype_name(in), adds ? " bias +C" : ""),
             !within(error, test.desc), fmt::format("worst/bound {:.1f}, rel L2 {:.1e}", error.worst, error.relative));
}

double bf16(double x) { return float_from_bf16(bf16_from_float(static_cast<float>(x))); }

/// The BF16 bounds themselves, on results rounded on the host as kernels might.
void check_bounds(uint64_t seed, Report& report, cudaStream_t stream) {
  device::LinearForwardGemm forward{.tokens = 128, .out = 480, .in = 320};
  const Case plain{"", forward.desc()};
  forward.bias = forward.residual = true;
  const Case full{"", forward.desc(), CMode::kSeparate};
  const GemmDesc& g = full.desc;
  const Operands o = make_operands(full, seed, stream);
  const std::vector<Expected> want = reference(full, o, stream, g.k).d;
  constexpr int kParts = 8;
  std::vector<std::vector<Expected>> partial;  // AB summed over 1/8, 2/8, ... of k
  for (int i = 1; i <= kParts; ++i) partial.push_back(reference(plain, o, stream, g.k * i / kParts).d);
  const std::vector<double> bias = o.bias.values(stream), c = o.c.values(stream);
  struct Rounding {
    const char* name;
    bool allowed;
    double (*result)(double ab, double bias, double c);
  };
  const auto verdict = [&](const char* name, bool allowed, const std::vector<double>& got) {
    const Error error = compare(got, want, g.d, g.k);
    report.add(
        fmt::format("bounds {} {}", allowed ? "allow" : "refuse", name), within(error, g) == allowed,
        fmt::format("worst/bound {:.3f}, rel L2 {:.2e} (<= {:.1e})", error.worst, error.relative, relative_bound(g)));
  };
  std::vector<double> got(want.size());
  for (const Rounding& r :
       {Rounding{"one rounding", true, [](double ab, double b, double x) { return ab + b + x; }},
        {"AB stored", true, [](double ab, double b, double x) { return bf16(ab) + b + x; }},
        {"AB + bias stored", true, [](double ab, double b, double x) { return bf16(ab + b) + x; }},
        {"AB + C stored", true, [](double ab, double b, double x) { return bf16(ab + x) + b; }},
        {"AB and AB + bias stored", false, [](double ab, double b, double x) { return bf16(bf16(ab) + b) + x; }}}) {
    for (size_t i = 0; i < got.size(); ++i)
      got[i] = bf16(r.result(partial.back()[i].value, bias[i % static_cast<size_t>(g.m)], c[i]));
    verdict(r.name, r.allowed, got);
  }
  for (size_t i = 0; i < got.size(); ++i) {
    double sum = 0, before = 0;
    for (const std::vector<Expected>& part : partial) {
      sum = bf16(sum + part[i].value - before);
      before = part[i].value;
    }
    got[i] = bf16(sum + bias[i % static_cast<size_t>(g.m)] + c[i]);
  }
  verdict("partial sums in BF16", false, got);
}

void check_plans(uint64_t seed, Report& report, cudaStream_t stream) {
  const ScratchFolder folder("gemm");
  const std::string path = folder.path() + "/plans.txt";
  const device::LinearForwardGemm forward{.tokens = 4096, .out = 1280, .in = 320, .bias = true, .residual = true};
  const device::LinearWgradGemm wgrad{.tokens = 4096, .out = 1280, .in = 320};
  const Case test{"plans", forward.desc(), CMode::kSeparate};
  const Operands o = make_operands(test, seed, stream);
  std::vector<std::byte> timed_bits;
  {
    GemmContext gemm({.plan_file = path});
    const GemmPlanInfo a = gemm.prepare(forward.desc(), stream), b = gemm.prepare(wgrad.desc(), stream);
    report.add(
        "plans are timed at first sight",
        a.source == GemmPlanInfo::Source::kTimed && b.source == GemmPlanInfo::Source::kTimed && a.candidates > 1,
        fmt::format("forward {} candidates, chose {} ({:.1f} us, first {:.1f}); wgrad {}, chose {} ({:.1f}, {:.1f})",
                    a.candidates, a.chosen, a.chosen_us, a.first_us, b.candidates, b.chosen, b.chosen_us, b.first_us));
    run(gemm, test, o, stream);
    timed_bits = o.d.download(stream);
    gemm.save();
  }
  {
    GemmContext gemm({.plan_file = path});
    const GemmPlanInfo info = gemm.prepare(forward.desc(), stream);
    run(gemm, test, o, stream);
    report.add("plan file is used again, bits equal",
               info.source == GemmPlanInfo::Source::kPlanFile && gemm.plans_reused() == 1 &&
                   o.d.download(stream) == timed_bits,
               fmt::format("{:.1f} us in the file", info.chosen_us));
  }
  const std::string content = read_text_file(path);
  {
    std::string other = content;
    for (size_t at = other.find("cublaslt="); at != std::string::npos; at = other.find("cublaslt=", at + 10))
      other.replace(at, 10, "cublaslt=9");
    write_file_atomically(path, other);
    GemmContext gemm({.tuning = device::GemmTuning::kFirstHeuristic, .plan_file = path});
    const GemmPlanInfo info = gemm.prepare(forward.desc(), stream);
    gemm.save();
    report.add("another version's plans are neither used nor lost",
               info.source == GemmPlanInfo::Source::kFirstHeuristic && read_text_file(path) == other, "");
  }
  {
    std::string other = content;
    for (size_t at = other.find("algo="); at != std::string::npos; at = other.find("algo=", at + 5))
      other.replace(at + 5, 128, std::string(128, 'f'));
    write_file_atomically(path, other + "cublaslt=damaged line without an end");
    GemmContext gemm({.tuning = device::GemmTuning::kFirstHeuristic, .plan_file = path});
    const GemmPlanInfo info = gemm.prepare(forward.desc(), stream);
    report.add("an algorithm that AlgoCheck refuses is replaced",
               info.source == GemmPlanInfo::Source::kFirstHeuristic && gemm.plans_refused() == 1,
               fmt::format("{} refused", gemm.plans_refused()));
  }
}

void check_graph(uint64_t seed, Report& report, cudaStream_t stream) {
  GemmContext gemm({.tuning = device::GemmTuning::kFirstHeuristic});
  const Case forward{"", device::LinearForwardGemm{.tokens = 512, .out = 640, .in = 320, .bias = true}.desc()};
  const Case wgrad{"", device::LinearWgradGemm{.tokens = 512, .out = 640, .in = 320}.desc(), CMode::kInPlace};
  const Operands x = make_operands(forward, seed, stream), y = make_operands(wgrad, seed + 10, stream);
  run(gemm, forward, x, stream);
  run(gemm, wgrad, y, stream);
  const auto forward_bits = x.d.download(stream), wgrad_bits = y.d.download(stream);
  const device::Graph graph = device::Graph::capture(stream, [&] {
    run(gemm, forward, x, stream);
    run(gemm, wgrad, y, stream);
  });
  bool equal = true;
  for (int i = 0; i < 3; ++i) {
    x.d.poison(stream);
    y.d.poison(stream);
    graph.launch(stream);
    equal = equal && x.d.download(stream) == forward_bits && y.d.download(stream) == wgrad_bits;
  }
  report.add("products in a CUDA graph, bits equal", equal, fmt::format("{} nodes", graph.nodes()));

  GemmContext timed({});
  bool refused = false;
  try {
    device::Graph::capture(stream, [&] { run(timed, forward, x, stream); });
  } catch (const InternalError&) {
    refused = true;
  }
  run(gemm, forward, x, stream);  // the stream still works
  report.add("timing inside a capture is refused, the stream lives on", refused && x.d.download(stream) == forward_bits,
             "");
}

void check_errors(Report& report, cudaStream_t stream) {
  std::string message;
  try {
    const device::DeviceBuffer buffer("the test of a full device", int64_t{1} << 50);
  } catch (const device::OutOfMemory& error) {
    message = error.what();
  }
  report.add("out of memory names bytes and purpose",
             message.find("1125899906842624") != std::string::npos &&
                 message.find("full device") != std::string::npos && cudaGetLastError() == cudaSuccess,
             message);
  message.clear();
  try {
    ESM_CUDA(cudaSetDevice(4711));
  } catch (const DeviceError& error) {
    message = error.what();
  }
  report.add("ESM_CUDA names the call and clears the error",
             message.find("cudaSetDevice(4711)") != std::string::npos &&
                 message.find("gemm_test.cpp") != std::string::npos && cudaGetLastError() == cudaSuccess,
             message);
  message.clear();
  cublasLtMatmulDesc_t desc = nullptr;
  ESM_CUBLASLT(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  try {
    const char too_short = 0;
    ESM_CUBLASLT(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &too_short, sizeof too_short));
  } catch (const DeviceError& error) {
    message = error.what();
  }
  cublasLtMatmulDescDestroy(desc);
  report.add("ESM_CUBLASLT names the call", message.find("cublasLtMatmulDescSetAttribute") != std::string::npos,
             message);
  GemmContext gemm({.tuning = device::GemmTuning::kFirstHeuristic});
  bool refused = false;
  try {
    const device::DeviceBuffer x("a test", 4096);
    gemm.run(device::LinearForwardGemm{.tokens = 8, .out = 8, .in = 8},
             {.x = x.as<std::byte>() + 2, .weight = x.get(), .y = x.as<std::byte>() + 1024}, stream);
  } catch (const InternalError&) {
    refused = true;
  }
  report.add("a misaligned operand is refused", refused, "");
  const device::PinnedBuffer pinned("a test", 1 << 20);
  cudaPointerAttributes attributes{};
  ESM_CUDA(cudaPointerGetAttributes(&attributes, pinned.get()));
  report.add("pinned memory is pinned", attributes.type == cudaMemoryTypeHost, "");
}

}  // namespace

int main() {
  if (device::cuda_device_count() == 0) {
    fmt::print("skipped: no CUDA device\n");
    return 77;
  }
  const uint64_t seed = run_seed();
  const device::Properties props = device::properties(0);
  fmt::print("{} sm_{} {} SMs, cuBLASLt {}, seed {}\n", props.name, props.compute_capability, props.sm_count,
             cublasLtGetVersion(), seed);
  Report report;
  try {
    const device::Stream stream;
    GemmContext gemm({.tuning = device::GemmTuning::kFirstHeuristic});
    const std::vector<Case> cases = make_cases();
    for (size_t i = 0; i < cases.size(); ++i)
      check_case(gemm, cases[i], seed + 100 * static_cast<uint64_t>(i), report, stream.get());
    check_planted_error(gemm, DType::kBF16, CMode::kNone, seed, report, stream.get());
    check_planted_error(gemm, DType::kBF16, CMode::kSeparate, seed, report, stream.get());
    check_planted_error(gemm, DType::kF32, CMode::kSeparate, seed, report, stream.get());
    check_bounds(seed, report, stream.get());
    check_graph(seed, report, stream.get());
    check_plans(seed, report, stream.get());
    check_errors(report, stream.get());
  } catch (const std::exception& error) {
    report.add("program ran to its end", false, error.what());
  }
  return report.finish("test_gemm");
}
