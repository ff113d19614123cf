#include "checks/gemm.h"

#include <chrono>
#include <optional>

#include "checks/gemm_reference.h"
#include "checks/harness.h"
#include "device/fp8_values.h"
#include "device/gemm.h"
#include "device/properties.h"
#include "device/stream.h"

namespace esm::checks {
namespace {

using cases::GemmC, cases::GemmCase;
using device::GemmContext, device::GemmDesc, device::GemmEpilogue;

std::vector<double> doubles(const std::vector<float>& x) { return {x.begin(), x.end()}; }

/// Operand A or B on the host (rounded to its type) and on the device.
struct Operand {
  DType dtype;
  device::GemmScale mode;
  int64_t rows, k, ld;  // FP8: of op(A), or of the transpose of op(B)
  int64_t elements;
};

class OperandData {
 public:
  OperandData(const Operand& o, Random& random) {
    std::vector<float> host = random.normals(o.elements);
    if (device::is_code(o.dtype)) {
      quantize(o, host, random);
    } else {
      plain_.emplace(o.dtype, host);
      values_ = doubles(host);
    }
  }
  const void* get() const { return plain_ ? plain_->get() : codes_->get(); }
  const void* scale() const { return scale_bytes_ ? scale_bytes_->get() : nullptr; }
  const std::vector<double>& values() const { return values_; }
  const std::vector<float>& scales() const { return scales_; }

 private:
  /// Each scale another one, so that a scale in the wrong place shows; the values times their scales are normal again.
  void quantize(const Operand& o, const std::vector<float>& host, Random& random) {
    std::vector<uint8_t> scale_bytes;
    const auto put = [&](float scale, const void* stored, size_t bytes) {
      scales_.push_back(scale);
      const auto* from = static_cast<const uint8_t*>(stored);
      scale_bytes.insert(scale_bytes.end(), from, from + bytes);
    };
    for (int64_t i = 0; i < device::scale_count(o.mode, o.rows, o.k); ++i) {
      if (o.mode == device::GemmScale::kMx32) {
        const auto code = static_cast<uint8_t>(120 + random.below(4));  // 2^-7 to 2^-4
        put(kernels::decode_ue8m0(code), &code, 1);
      } else if (o.mode == device::GemmScale::kNv16) {
        const auto code = static_cast<uint8_t>(0x28 + random.below(16));  // 1/4 to 15/16
        put(kernels::decode_e4m3(code), &code, 1);
      } else {
        const float scale = random.uniform(0.015f, 0.06f);
        put(scale, &scale, sizeof scale);
      }
    }
    std::vector<uint8_t> codes(static_cast<size_t>(device::operand_bytes(o.dtype, o.elements)));
    values_.resize(host.size());
    for (int64_t r = 0; r < o.rows; ++r)
      for (int64_t i = 0; i < o.k; ++i) {
        const auto at = static_cast<size_t>(r * o.ld + i);
        const float scale = scales_[static_cast<size_t>(device::scale_index(o.mode, o.rows, o.k, r, i))];
        if (o.dtype == DType::kF4E2M1x2) {
          const uint32_t code = kernels::encode_e2m1(host[at] / scale);
          codes[at / 2] = static_cast<uint8_t>(codes[at / 2] | code << (at % 2 * 4));
          values_[at] = kernels::decode_e2m1(code);
        } else {
          codes[at] = device::fp8_from_float(o.dtype, host[at] / scale);
          values_[at] = device::float_from_fp8(o.dtype, codes[at]);
        }
      }
    codes_.emplace(codes);
    scale_bytes_.emplace(scale_bytes);
  }

  std::vector<double> values_;
  std::vector<float> scales_;
  std::optional<Activations> plain_;
  std::optional<DeviceBuffer<uint8_t>> codes_;
  std::optional<DeviceBuffer<uint8_t>> scale_bytes_;
};

OperandData make_a(const GemmDesc& g, Random& random) {
  return {{g.a, g.scale_a, g.m, g.k, g.lda, g.lda * (g.transpose_a ? g.m : g.k)}, random};
}
OperandData make_b(const GemmDesc& g, Random& random) {
  return {{g.b, g.scale_b, g.n, g.k, g.ldb, g.ldb * (g.transpose_b ? g.k : g.n)}, random};
}

/// One case on the host and on the device.
class Problem {
 public:
  Problem(const GemmCase& test, Random& random)
      : test_(test), a_(make_a(test.desc, random)), b_(make_b(test.desc, random)) {
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
      bias_.emplace(g.bias_type(), bias);
      operands.bias = doubles(bias);
    }
    operands.a = a_.values();
    operands.b = b_.values();
    operands.scale_a = a_.scales();
    operands.scale_b = b_.scales();
    if (!g.device_factors) return;
    const float alpha = random.uniform(0.3f, 0.9f);
    operands.alpha = alpha;
    factors_.emplace(std::vector<float>{alpha, g.accumulate ? 1.0f : 0.0f});
  }

  void run(GemmContext& gemm, device::StreamHandle stream) {
    const GemmDesc& g = test_.desc;
    d_->poison();
    if (test_.c == GemmC::kInPlace) d_->upload(c_host_);
    CHECK_CUDA(cudaDeviceSynchronize());  // the stream does not wait for the default one
    gemm.run(g,
             {.a = a_.get(),
              .b = b_.get(),
              .c = test_.c == GemmC::kSeparate ? c_->get() : nullptr,
              .d = d_->get(),
              .bias = g.epilogue == GemmEpilogue::kBias ? bias_->get() : nullptr,
              .scale_a = a_.scale(),
              .scale_b = b_.scale(),
              .factors = factors_ ? factors_->get() : nullptr},
             stream);
  }
  std::vector<float> result() const { return d_->download(); }

  GemmOperands operands;

 private:
  const GemmCase& test_;
  std::vector<float> c_host_;
  OperandData a_, b_;
  std::optional<Activations> c_, d_, bias_;
  std::optional<DeviceBuffer<float>> factors_;
};

void check(GemmContext& gemm, const GemmCase& test, Random& random, Report& report, device::StreamHandle stream,
           int capability) {
  const GemmDesc& g = test.desc;
  if (!gemm.supported(g)) {
    if (!test.may_lack_kernel && device::fp8_device_obstacle(g, capability).empty())
      report.add({.name = test.name + ": cuBLASLt has no kernel"});
    return;
  }
  Problem problem(test, random);
  problem.run(gemm, stream);
  const std::vector<float> got = problem.result();
  const GemmReference want = gemm_reference(g, problem.operands, g.k);
  const GemmError error = gemm_error(doubles(got), want.d, g);
  report.add({test.name, error.worst, 1, error.relative, error.worst <= 1});
  report.add({test.name + " rel. L2", error.relative, gemm_relative_bound(g), error.relative, within(error, g)});
  problem.run(gemm, stream);
  report.same(test.name + " twice", got, problem.result());
}

CheckGroup run_cases(const std::string& name, const std::vector<GemmCase>& tests, uint64_t seed) {
  CheckGroup group{.name = name};
  const auto start = std::chrono::steady_clock::now();
  Report report;
  try {
    const device::Stream stream;
    GemmContext gemm({.tuning = device::GemmTuning::kFirstHeuristic});
    Random random(seed);
    int index = 0;
    CHECK_CUDA(cudaGetDevice(&index));
    const int capability = device::properties(index).compute_capability;
    for (const GemmCase& test : tests) check(gemm, test, random, report, stream.get(), capability);
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

}  // namespace

CheckGroup check_gemms(uint64_t seed) { return run_cases("gemm", cases::gemm_cases(), seed); }
CheckGroup check_fp8_gemms(uint64_t seed) { return run_cases("gemm fp8", cases::fp8_gemm_cases(), seed); }

}  // namespace esm::checks
