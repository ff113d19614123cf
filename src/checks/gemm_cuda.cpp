#include "checks/gemm.h"

#include <chrono>
#include <optional>

#include "checks/gemm_reference.h"
#include "checks/harness.h"
#include "device/gemm.h"
#include "device/stream.h"

namespace esm::checks {
namespace {

using cases::GemmC, cases::GemmCase;
using device::GemmContext, device::GemmDesc, device::GemmEpilogue;

std::vector<double> doubles(const std::vector<float>& x) { return {x.begin(), x.end()}; }

/// One case's operands on the host (rounded to their types) and on the device.
class Problem {
 public:
  Problem(const GemmCase& test, Random& random)
      : test_(test), a_(test.desc.a, a_values(random)), b_(test.desc.b, b_values(random)) {
    const GemmDesc& g = test.desc;
    const int64_t d_elements = g.ldd * g.n;
    if (test.c != GemmC::kNone) c_host_ = random.normals(d_elements, 3);
    d_.emplace(g.d, static_cast<size_t>(d_elements));
    if (test.c != GemmC::kNone) {
      c_.emplace(g.d, c_host_);
      operands.c = doubles(c_host_);
    }
    if (g.epilogue == GemmEpilogue::kBias) {
      std::vector<float> bias = random.normals(g.m, 3);
      bias_.emplace(g.d, bias);
      operands.bias = doubles(bias);
    } else if (g.epilogue == GemmEpilogue::kBiasGradient) {
      bias_.emplace(g.d, static_cast<size_t>(g.n));
    }
    operands.a = doubles(a_host_);
    operands.b = doubles(b_host_);
  }

  void run(GemmContext& gemm, device::StreamHandle stream) {
    const GemmDesc& g = test_.desc;
    d_->poison();
    if (test_.c == GemmC::kInPlace) d_->upload(c_host_);
    const bool gradient = g.epilogue == GemmEpilogue::kBiasGradient;
    if (gradient) bias_->poison();
    CHECK_CUDA(cudaDeviceSynchronize());  // the stream does not wait for the default one
    gemm.run(g,
             {.a = a_.get(),
              .b = b_.get(),
              .c = test_.c == GemmC::kSeparate ? c_->get() : nullptr,
              .d = d_->get(),
              .bias = g.epilogue == GemmEpilogue::kBias ? bias_->get() : nullptr,
              .bias_gradient = gradient ? bias_->get() : nullptr},
             stream);
  }
  std::vector<float> result() const { return d_->download(); }
  std::vector<float> bias_gradient() const { return bias_->download(); }

  GemmOperands operands;

 private:
  std::vector<float>& a_values(Random& random) {
    const GemmDesc& g = test_.desc;
    return a_host_ = random.normals(g.lda * (g.transpose_a ? g.m : g.k));
  }
  std::vector<float>& b_values(Random& random) {
    const GemmDesc& g = test_.desc;
    return b_host_ = random.normals(g.ldb * (g.transpose_b ? g.k : g.n));
  }

  const GemmCase& test_;
  std::vector<float> a_host_, b_host_, c_host_;
  Activations a_, b_;
  std::optional<Activations> c_, d_, bias_;
};

void check(GemmContext& gemm, const GemmCase& test, Random& random, Report& report, device::StreamHandle stream) {
  const GemmDesc& g = test.desc;
  if (!gemm.supported(g)) {
    if (!test.may_lack_kernel) report.add({.name = test.name + ": cuBLASLt has no kernel"});
    return;
  }
  Problem problem(test, random);
  problem.run(gemm, stream);
  const std::vector<float> got = problem.result();
  const GemmReference want = gemm_reference(g, problem.operands, g.k);
  const GemmError error = gemm_error(doubles(got), want.d, g.d, g.k);
  report.add({test.name, error.worst, 1, error.relative, error.worst <= 1});
  report.add({test.name + " rel. L2", error.relative, gemm_relative_bound(g), error.relative, within(error, g)});
  if (g.epilogue == GemmEpilogue::kBiasGradient) {
    const GemmError off = gemm_error(doubles(problem.bias_gradient()), want.bias_gradient, g.d, g.k);
    report.add({test.name + " bias gradient", off.worst, 1, off.relative, off.worst <= 1});
  }
  problem.run(gemm, stream);
  report.same(test.name + " twice", got, problem.result());
}

}  // namespace

CheckGroup check_gemms(uint64_t seed) {
  CheckGroup group{.name = "gemm"};
  const auto start = std::chrono::steady_clock::now();
  Report report;
  try {
    const device::Stream stream;
    GemmContext gemm({.tuning = device::GemmTuning::kFirstHeuristic});
    Random random(seed);
    for (const GemmCase& test : cases::gemm_cases()) check(gemm, test, random, report, stream.get());
    stream.synchronize();
  } catch (const DeviceError& error) {
    group.failure = error.what();
    group.device_lost = cudaDeviceSynchronize() != cudaSuccess;
    cudaGetLastError();
  }
  group.cases = report.take();
  group.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return group;
}

}  // namespace esm::checks
