// cuBLASLt products against FP64 on the host: three roles, FP32 and BF16, bias, residual, accumulation, odd shapes;
// plans, plan file, graphs, errors.

#include "checks/gemm.h"
#include "base/check.h"
#include "base/files.h"
#include "checks/gemm_reference.h"
#include "device/gemm.h"
#include "device/gemm_plan_file.h"
#include "device/properties.h"
#include "device/stream.h"
#include "device/versions.h"
#include "tests/device/device_array.h"
#include "tests/device/report.h"

using namespace esm;
using namespace esm::test;
using cases::GemmC;
using checks::gemm_error;
using checks::GemmError;
using checks::GemmExpected;
using checks::within;
using device::GemmContext;
using device::GemmDesc;
using device::GemmEpilogue;
using device::GemmPlanInfo;

namespace {

struct Operands {
  DeviceArray a, b, c = {}, d, bias = {};  // c: separate C or the D before; empty without accumulate
};

struct Case {
  GemmDesc desc;
  GemmC c = GemmC::kNone;
};

int64_t a_elements(const GemmDesc& g) { return g.lda * (g.transpose_a ? g.m : g.k); }
int64_t b_elements(const GemmDesc& g) { return g.ldb * (g.transpose_b ? g.k : g.n); }

Operands make_operands(const Case& test, uint64_t seed, cudaStream_t stream) {
  const GemmDesc& g = test.desc;
  Operands o{
      .a = DeviceArray(g.a, a_elements(g)), .b = DeviceArray(g.b, b_elements(g)), .d = DeviceArray(g.d, g.ldd * g.n)};
  o.a.fill_normal(seed, 1.0f, stream);
  o.b.fill_normal(seed + 1, 1.0f, stream);
  if (test.c != GemmC::kNone) {
    o.c = DeviceArray(g.d, g.ldd * g.n);
    o.c.fill_normal(seed + 2, 3.0f, stream);
  }
  if (g.epilogue == GemmEpilogue::kBias) {
    o.bias = DeviceArray(g.d, g.m);
    o.bias.fill_normal(seed + 3, 3.0f, stream);
  }
  return o;
}

void run(GemmContext& gemm, const Case& test, const Operands& o, cudaStream_t stream) {
  o.d.poison(stream);
  if (test.c == GemmC::kInPlace)
    ESM_CUDA(cudaMemcpyAsync(o.d.get(), o.c.get(), static_cast<size_t>(o.c.bytes()), cudaMemcpyDeviceToDevice, stream));
  const bool bias = test.desc.epilogue == GemmEpilogue::kBias;
  gemm.run(test.desc,
           {.a = o.a.get(),
            .b = o.b.get(),
            .c = test.c == GemmC::kSeparate ? o.c.get() : nullptr,
            .d = o.d.get(),
            .bias = bias ? o.bias.get() : nullptr},
           stream);
}

std::vector<GemmExpected> reference(const Case& test, const Operands& o, cudaStream_t stream, int64_t k_used) {
  return checks::gemm_reference(
             test.desc,
             {.a = o.a.values(stream),
              .b = o.b.values(stream),
              .c = test.c == GemmC::kNone ? std::vector<double>() : o.c.values(stream),
              .bias = test.desc.epilogue == GemmEpilogue::kBias ? o.bias.values(stream) : std::vector<double>()},
             k_used)
      .d;
}

/// All cases of the table that the doctor runs too.
void check_cases(uint64_t seed, Report& report) {
  const checks::CheckGroup group = checks::check_gemms(seed);
  for (const checks::Case& c : group.cases)
    report.add(c.name, c.ok, fmt::format("{:.3g} (<= {:.3g}), rel L2 {:.2e}", c.error, c.bound, c.relative_l2));
  report.add("all cases ran", group.failure.empty() && !group.cases.empty(), group.failure);
}

/// The bounds must notice one missing product, also where they allow for a stored sum.
void check_planted_error(GemmContext& gemm, DType in, GemmC c, uint64_t seed, Report& report, cudaStream_t stream) {
  const bool adds = c != GemmC::kNone;
  const device::LinearForwardGemm forward{
      .tokens = 64, .out = 64, .in = 320, .operands = in, .y = in, .bias = adds, .residual = adds};
  const Case test{forward.desc(), c};
  const Operands o = make_operands(test, seed, stream);
  run(gemm, test, o, stream);
  const GemmError error =
      gemm_error(o.d.values(stream), reference(test, o, stream, test.desc.k - 1), test.desc.d, test.desc.k);
  report.add(fmt::format("planted error in {}{} is found", dtype_name(in), adds ? " bias +C" : ""),
             !within(error, test.desc), fmt::format("worst/bound {:.1f}, rel L2 {:.1e}", error.worst, error.relative));
}

void check_plans(uint64_t seed, Report& report, cudaStream_t stream) {
  const ScratchFolder folder("gemm");
  const std::string path = folder.path() + "/plans.txt";
  const device::LinearForwardGemm forward{.tokens = 4096, .out = 1280, .in = 320, .bias = true, .residual = true};
  const device::LinearWgradGemm wgrad{.tokens = 4096, .out = 1280, .in = 320};
  const Case test{forward.desc(), GemmC::kSeparate};
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
    GemmContext gemm({.plan_file = path});
    const GemmPlanInfo info = gemm.prepare(forward.desc(), stream);
    const std::string now = read_text_file(path);
    report.add("another version's plans are neither used nor lost",
               info.source == GemmPlanInfo::Source::kTimed && now.starts_with(other) && now.size() > other.size(), "");
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
  {
    const std::string no_file = folder.path();  // can be neither read nor written
    GemmContext gemm({.plan_file = no_file});
    report.add("a plan file of no use costs a search only",
               gemm.prepare(forward.desc(), stream).source == GemmPlanInfo::Source::kTimed, "");
  }
}

void check_graph(uint64_t seed, Report& report, cudaStream_t stream) {
  GemmContext gemm({.tuning = device::GemmTuning::kFirstHeuristic});
  const Case forward{device::LinearForwardGemm{.tokens = 512, .out = 640, .in = 320, .bias = true}.desc()};
  const Case wgrad{device::LinearWgradGemm{.tokens = 512, .out = 640, .in = 320}.desc(), GemmC::kInPlace};
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
    check_cases(seed, report);
    check_planted_error(gemm, DType::kBF16, GemmC::kNone, seed, report, stream.get());
    check_planted_error(gemm, DType::kBF16, GemmC::kSeparate, seed, report, stream.get());
    check_planted_error(gemm, DType::kF32, GemmC::kSeparate, seed, report, stream.get());
    check_graph(seed, report, stream.get());
    check_plans(seed, report, stream.get());
    check_errors(report, stream.get());
  } catch (const std::exception& error) {
    report.add("program ran to its end", false, error.what());
  }
  return report.finish("test_gemm");
}
