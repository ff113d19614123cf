// `esmtrain bench step`: the training step by itself, on synthetic proteins.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "device/phase_clock.h"
#include "train/run_config.h"

namespace esm::train {

struct BenchStepOptions {
  /// Tokens of every sequence; 0: protein lengths, log-normal (mu 5.6, sigma 0.65 of the natural logarithm), clipped to
  /// 30 .. data.max_tokens.
  int64_t seqlen = 0;
  int64_t warmup_steps = 5;  // not measured: kernels are chosen and memory is allocated
  int64_t steps = 50;
  std::string kernel_cache;  // as TrainOptions
};

struct BenchStepResult {
  bool deterministic = false;                            // the same bits from run to run
  std::string attention;                                 // backend; "cpu"
  std::vector<std::string> products;                     // what they work in, a line each
  double median_ms = 0, fastest_ms = 0, slowest_ms = 0;  // wall time of a step, micro-batches and optimizer included
  int64_t real_tokens = 0, padded_tokens = 0;            // of a step
  double effective_seqlen = 0;                           // sum(l^2) / sum(l) of the sequences
  double flops_per_token = 0;  // 6 (parameters of the GEMMs) + 12 layers hidden effective_seqlen, whole head counted
  double first_loss = 0, last_loss = 0;
  std::vector<device::PhaseTime> phases;  // CUDA: device time of a step by kind of operation, without graphs
  int64_t device_bytes = 0;     // CUDA: in use on the device at the end (LibTorch's allocator keeps its peak); else 0
  int64_t predicted_bytes = 0;  // CUDA: the same by plan_memory()

  double real_tokens_per_s() const { return 1e3 * static_cast<double>(real_tokens) / median_ms; }
  double padded_tokens_per_s() const { return 1e3 * static_cast<double>(padded_tokens) / median_ms; }
  double tflops() const { return real_tokens_per_s() * flops_per_token * 1e-12; }
};

/// Trains a model of random weights with the step that `esmtrain train` runs. Data, checkpoints and schedule of
/// `config` are not used. Throws DeviceError.
BenchStepResult bench_step(const RunConfig& config, const BenchStepOptions& options);

}  // namespace esm::train
