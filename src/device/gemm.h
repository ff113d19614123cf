// Matrix products through cuBLASLt: plans made once, timed on demand, kept in a file; calls that allocate nothing and
// wait for nothing, so that they can be captured in a graph.
//
// Determinism: a plan gives the same bits every time (split sums have a fixed order). Which plan is chosen by timing
// may differ between runs, so bit-equal runs use GemmTuning::kFirstHeuristic and no plan file.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "device/gemm_desc.h"
#include "device/gemm_fp8.h"
#include "device/handles.h"

namespace esm::device {

enum class GemmTuning {
  kFirstHeuristic,  // cuBLASLt's own first proposal, at once
  kTimed,           // proposals timed when a product is first seen: takes tenths of a second and memory for operands
};

inline constexpr int64_t kLeastGemmWorkspace = int64_t{32} << 20;
/// Enough to split the sum of a gradient of `elements` FP32 in two (H200, weight gradients of 650M: 15 % faster).
constexpr int64_t gemm_workspace_for(int64_t elements) {
  constexpr int64_t kMost = int64_t{512} << 20;
  const int64_t wanted = (2 * 4 * elements + kLeastGemmWorkspace - 1) / kLeastGemmWorkspace * kLeastGemmWorkspace;
  return wanted < kLeastGemmWorkspace ? kLeastGemmWorkspace : wanted > kMost ? kMost : wanted;
}

struct GemmOptions {
  GemmTuning tuning = GemmTuning::kTimed;
  /// Read at the start, written after each plan that was timed; empty: none. A plan found there is never timed again.
  /// A file that cannot be read or written is warned about and done without.
  std::string plan_file = {};
  int64_t workspace_bytes = kLeastGemmWorkspace;
  int candidates = 16;  // proposals asked for
};

/// Device pointers, aligned to GemmDesc::alignment_bytes; those that the descriptor does not use stay nullptr.
struct GemmArgs {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* c = nullptr;  // with accumulate; nullptr: D itself
  void* d = nullptr;
  const void* bias = nullptr;
  /// Factors of operands in codes in device memory, read when the product runs; FP32, or bytes of kMx32 and kNv16, in
  /// the order of scale_index(), aligned to 16 bytes (cuBLASLt finds no kernel otherwise).
  const void* scale_a = nullptr;
  const void* scale_b = nullptr;
  const float* factors = nullptr;  // [2] in device memory, with device_factors: alpha and beta (0 or 1, as accumulate)
};

/// How a plan came about, for logs and `bench gemm`.
struct GemmPlanInfo {
  enum class Source { kFirstHeuristic, kTimed, kPlanFile };
  Source source = Source::kFirstHeuristic;
  int candidates = 0;   // timed
  int chosen = 0;       // index among them; 0 is cuBLASLt's first
  double first_us = 0;  // median device time of the first and of the chosen one, cold caches; 0: not timed
  double chosen_us = 0;
  int64_t workspace_bytes = 0;
};

/// Owns the cuBLASLt handle, the workspace and the plans of the device that is current when it is made. Its products
/// share the workspace: use it on one stream at a time, and make another one for a second stream. Not thread-safe.
class GemmContext {
 public:
  explicit GemmContext(const GemmOptions& options);
  ~GemmContext();
  GemmContext(const GemmContext&) = delete;
  GemmContext& operator=(const GemmContext&) = delete;

  /// Queues D = op(A) op(B) (+ bias) (+ C). Makes the plan if there is none yet: warm up before capturing. DeviceError
  /// when cuBLASLt has no kernel for it.
  void run(const GemmDesc& desc, const GemmArgs& args, StreamHandle stream);

  struct ForwardArgs {
    const void *x = nullptr, *weight = nullptr, *bias = nullptr, *residual = nullptr;
    void* y = nullptr;
  };
  void run(const LinearForwardGemm& gemm, const ForwardArgs& args, StreamHandle stream);
  struct DgradArgs {
    const void *dy = nullptr, *weight = nullptr;
    void* dx = nullptr;
  };
  void run(const LinearDgradGemm& gemm, const DgradArgs& args, StreamHandle stream);
  struct WgradArgs {
    const void *dy = nullptr, *x = nullptr;
    void* dweight = nullptr;
  };
  void run(const LinearWgradGemm& gemm, const WgradArgs& args, StreamHandle stream);

  struct Fp8Data {
    const void* values = nullptr;
    const void* scale = nullptr;
  };
  struct Fp8ForwardArgs {
    Fp8Data x, weight;
    const void *bias = nullptr, *residual = nullptr;
    void* y = nullptr;
    const float* factors = nullptr;
  };
  void run(const Fp8ForwardGemm& gemm, const Fp8ForwardArgs& args, StreamHandle stream);
  struct Fp8DgradArgs {
    Fp8Data dy, weight_t;
    void* dx = nullptr;
    const float* factors = nullptr;
  };
  void run(const Fp8DgradGemm& gemm, const Fp8DgradArgs& args, StreamHandle stream);
  struct Fp8WgradArgs {
    Fp8Data dy_t, x_t;
    void* dweight = nullptr;
    const float* factors = nullptr;
  };
  void run(const Fp8WgradGemm& gemm, const Fp8WgradArgs& args, StreamHandle stream);

  /// Makes the plan of `desc` as run() would and says what it is.
  GemmPlanInfo prepare(const GemmDesc& desc, StreamHandle stream);
  /// Times anew, whatever the tuning mode and the plan file say. Needs device memory for the operands and a flush
  /// buffer of twice the L2 cache; falls back to the first heuristic (with a warning) when there is too little.
  GemmPlanInfo tune(const GemmDesc& desc, StreamHandle stream);
  /// True when cuBLASLt proposes a kernel for `desc`; false too for one with an fp8_obstacle(). Makes no
  /// plan, times nothing.
  bool supported(const GemmDesc& desc);

  /// Plans from the file that cuBLASLt accepted, and those it refused on this device, so far.
  int64_t plans_reused() const;
  int64_t plans_refused() const;

  int64_t workspace_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace esm::device
