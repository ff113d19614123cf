// cuBLASLt's FP8 products: all cases against FP64, scales read when a product runs, graphs, plans, what is not
// supported.

#include "base/check.h"
#include "base/files.h"
#include "checks/gemm.h"
#include "checks/gemm_reference.h"
#include "device/fp8_values.h"
#include "device/gemm.h"
#include "device/properties.h"
#include "device/stream.h"
#include "device/versions.h"
#include "tests/device/device_array.h"
#include "tests/device/report.h"

using namespace esm;
using namespace esm::test;
using device::Fp8ForwardGemm;
using device::Fp8WgradGemm;
using device::GemmContext;
using device::GemmDesc;
using device::GemmPlanInfo;
using device::GemmScale;

namespace {

/// Codes of normal values times 64.
DeviceArray random_codes(DType dtype, int64_t n, uint64_t seed, cudaStream_t stream) {
  DeviceArray plain(DType::kF32, n), codes(dtype, n);
  plain.fill_normal(seed, 64.0f, stream);
  std::vector<uint8_t> host;
  for (const double value : plain.values(stream))
    host.push_back(device::fp8_from_float(dtype, static_cast<float>(value)));
  codes.upload(host.data(), stream);
  return codes;
}

std::vector<double> decoded(const DeviceArray& codes, cudaStream_t stream) {
  std::vector<double> values;
  for (const std::byte code : codes.download(stream))
    values.push_back(device::float_from_fp8(codes.dtype(), static_cast<uint8_t>(code)));
  return values;
}

/// One scale a tensor on either side.
struct Product {
  Product(const GemmDesc& desc, uint64_t seed, cudaStream_t stream)
      : g(desc),
        a(random_codes(desc.a, desc.lda * desc.m, seed, stream)),
        b(random_codes(desc.b, desc.ldb * desc.n, seed + 1, stream)),
        d(desc.d, desc.ldd * desc.n),
        scales(DType::kF32, 5) {
    set_scales(0.017f, 0.023f, stream);
  }
  void set_scales(float scale_a, float scale_b, cudaStream_t stream) {
    const float host[5] = {scale_a, 0, 0, 0, scale_b};
    scales.upload(host, stream);
  }
  void run(GemmContext& gemm, cudaStream_t stream) const {
    d.poison(stream);
    queue(gemm, stream);
  }
  void queue(GemmContext& gemm, cudaStream_t stream) const {
    gemm.run(
        g, {.a = a.get(), .b = b.get(), .d = d.get(), .scale_a = scales.as<float>(), .scale_b = scales.as<float>() + 4},
        stream);
  }
  checks::GemmError error(int64_t k_used, cudaStream_t stream) const {
    const std::vector<double> s = scales.values(stream);
    const auto want = checks::gemm_reference(g,
                                             {.a = decoded(a, stream),
                                              .b = decoded(b, stream),
                                              .scale_a = {static_cast<float>(s[0])},
                                              .scale_b = {static_cast<float>(s[4])}},
                                             k_used);
    return checks::gemm_error(d.values(stream), want.d, g);
  }
  GemmDesc g;
  DeviceArray a, b, d, scales;
};

GemmDesc forward(bool fast) {
  return Fp8ForwardGemm{.tokens = 256, .out = 320, .in = 320, .fast_accumulation = fast}.desc();
}

std::string shown(const checks::GemmError& error) {
  return fmt::format("worst/bound {:.2f}, rel L2 {:.2e}", error.worst, error.relative);
}

void check_cases(uint64_t seed, Report& report) {
  const checks::CheckGroup group = checks::check_fp8_gemms(seed);
  for (const checks::Case& c : group.cases)
    report.add(c.name, c.ok, fmt::format("{:.3g} (<= {:.3g}), rel L2 {:.2e}", c.error, c.bound, c.relative_l2));
  report.add("all cases ran", group.failure.empty() && !group.cases.empty(),
             fmt::format("{:.1f} s {}", group.seconds, group.failure));
}

/// Plans know no scale: the same plan, and the same graph, with other scales.
void check_scales(GemmContext& gemm, uint64_t seed, Report& report, cudaStream_t stream) {
  for (const bool fast : {false, true}) {
    const std::string what = fast ? "fast" : "split";
    Product product(forward(fast), seed, stream);
    product.run(gemm, stream);
    report.add(what + " within bounds", checks::within(product.error(product.g.k, stream), product.g),
               shown(product.error(product.g.k, stream)));
    report.add(what + ": a missing product is found",
               !checks::within(product.error(product.g.k - 1, stream), product.g),
               shown(product.error(product.g.k - 1, stream)));
    const auto bits = product.d.download(stream);
    const device::Graph graph = device::Graph::capture(stream, [&] { product.queue(gemm, stream); });
    product.d.poison(stream);
    graph.launch(stream);
    report.add(what + " in a graph, bits equal", product.d.download(stream) == bits, "");
    product.set_scales(0.5f, 3.0f, stream);
    product.d.poison(stream);
    graph.launch(stream);
    report.add(what + " in a graph reads new scales",
               checks::within(product.error(product.g.k, stream), product.g) && product.d.download(stream) != bits,
               shown(product.error(product.g.k, stream)));
  }
}

void check_plans(uint64_t seed, Report& report, cudaStream_t stream) {
  const ScratchFolder folder("gemm_fp8");
  const std::string path = folder.path() + "/plans.txt";
  const GemmDesc fast = Fp8ForwardGemm{.tokens = 4096, .out = 1280, .in = 320, .fast_accumulation = true}.desc();
  const GemmDesc wgrad = Fp8WgradGemm{.tokens = 4096, .out = 1280, .in = 320, .dy_t = {.dtype = DType::kF8E5M2}}.desc();
  const GemmDesc outer = Fp8ForwardGemm{.tokens = 4096,
                                        .out = 1280,
                                        .in = 320,
                                        .weight = {.scale = GemmScale::kOuterVector},
                                        .x = {.scale = GemmScale::kOuterVector}}
                             .desc();
  const GemmDesc blocks = Fp8ForwardGemm{.tokens = 4096,
                                         .out = 1280,
                                         .in = 1280,
                                         .weight = {.scale = GemmScale::kBlock128},
                                         .x = {.scale = GemmScale::kVector128}}
                              .desc();
  const Product product(fast, seed, stream);
  std::vector<std::byte> bits;
  int64_t timed = 0;
  {
    GemmContext gemm({.plan_file = path});
    for (const GemmDesc& g : {fast, wgrad, outer, blocks}) {
      if (!gemm.supported(g)) continue;
      const GemmPlanInfo info = gemm.prepare(g, stream);
      ++timed;
      report.add("timed at first sight: " + text(g), info.source == GemmPlanInfo::Source::kTimed && info.chosen_us > 0,
                 fmt::format("{} candidates, chose {} ({:.1f} us, first {:.1f})", info.candidates, info.chosen,
                             info.chosen_us, info.first_us));
    }
    product.run(gemm, stream);
    bits = product.d.download(stream);
  }
  GemmContext gemm({.plan_file = path});
  for (const GemmDesc& g : {fast, wgrad, outer, blocks})
    if (gemm.supported(g)) gemm.prepare(g, stream);
  product.run(gemm, stream);
  report.add("the plan file serves FP8 products, bits equal",
             gemm.plans_reused() == timed && gemm.plans_refused() == 0 && product.d.download(stream) == bits,
             fmt::format("{} of {} reused", gemm.plans_reused(), timed));
}

/// Timing combines settings of proposals: none of them may turn split accumulation into fast one.
void check_timed_sums(uint64_t seed, Report& report, cudaStream_t stream) {
  GemmContext gemm({});
  for (const bool fast : {false, true}) {
    const Product product(Fp8WgradGemm{.tokens = 65536,
                                       .out = 64,
                                       .in = 64,
                                       .dy_t = {.dtype = DType::kF8E5M2},
                                       .fast_accumulation = fast,
                                       .accumulate = false}
                              .desc(),
                          seed, stream);
    product.run(gemm, stream);
    const checks::GemmError error = product.error(product.g.k, stream);
    report.add(fmt::format("timed, {} sums over 65,536", fast ? "fast" : "split"), checks::within(error, product.g),
               fmt::format("{}, at most {:.2e}", shown(error), checks::gemm_relative_bound(product.g)));
  }
}

void check_refusals(GemmContext& gemm, Report& report, cudaStream_t stream) {
  GemmDesc g = forward(false);
  g.transpose_b = true;
  report.add("a product that FP8 cannot take is not supported, and no error", !gemm.supported(g), "");
  report.add("a product that it takes is supported", gemm.supported(forward(true)), text(forward(true)));
  bool refused = false;
  try {
    const device::DeviceBuffer x("a test", 1 << 20);
    gemm.run(Fp8ForwardGemm{.tokens = 16, .out = 16, .in = 16},
             {.x = {.values = x.get()}, .weight = {.values = x.get()}, .y = x.as<std::byte>() + 65536}, stream);
  } catch (const InternalError&) {
    refused = true;
  }
  report.add("an operand without its scale is refused", refused, "");
}

}  // namespace

int main() {
  if (device::cuda_device_count() == 0 || device::properties(0).compute_capability < device::kLeastFp8Capability) {
    fmt::print("skipped: no CUDA device with FP8 tensor cores\n");
    return 77;
  }
  const uint64_t seed = run_seed();
  fmt::print("{}, seed {}\n", device::properties(0).name, seed);
  Report report;
  try {
    const device::Stream stream;
    GemmContext gemm({.tuning = device::GemmTuning::kFirstHeuristic});
    check_cases(seed, report);
    check_scales(gemm, seed, report, stream.get());
    check_refusals(gemm, report, stream.get());
    check_plans(seed, report, stream.get());
    check_timed_sums(seed, report, stream.get());
  } catch (const std::exception& error) {
    report.add("program ran to its end", false, error.what());
  }
  return report.finish("test_gemm_fp8");
}
