// `esmtrain bench step` and `bench forward`: the training step, or the forward pass to embeddings, by itself.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "device/phase_clock.h"
#include "train/bench_batches.h"
#include "train/run_config.h"

namespace esm::train {

struct BenchStepOptions {
  BenchBatchOptions batches;
  int64_t warmup_steps = 5;  // not measured: kernels are chosen and memory is allocated
  int64_t steps = 50;
  std::string kernel_cache;  // as TrainOptions
};

/// How fast something was that takes a number of tokens at once ("step").
struct BenchSpeed {
  double median_ms = 0, fastest_ms = 0, slowest_ms = 0;  // wall time of a step
  double processor_ms = 0;                               // processor time of a step, all threads, mean
  double least_processor_ms = 0;                         // the least: tells most on a busy machine
  int64_t real_tokens = 0, padded_tokens = 0;            // of a step, mean
  double effective_seqlen = 0;                           // sum(l^2) / sum(l) of the sequences
  double flops_per_token = 0;                            // flops.h
  std::vector<device::PhaseTime> phases;  // time of a step by kind of operation, over further steps; on CUDA device
                                          // time without graphs
  double clocked_ms = 0;                  // wall time of those; on CUDA median_ms
  int64_t peak_bytes = 0;                 // CPU: peak resident memory of the process
  double product_gflops = 0;              // CPU: measure_product_gflops()

  double real_tokens_per_s() const { return 1e3 * static_cast<double>(real_tokens) / median_ms; }
  double padded_tokens_per_s() const { return 1e3 * static_cast<double>(padded_tokens) / median_ms; }
  double tflops() const { return real_tokens_per_s() * flops_per_token * 1e-12; }
};

struct BenchStepResult {
  BenchSpeed speed;                   // micro-batches and optimizer included
  bool deterministic = false;         // the same bits from run to run
  std::string attention;              // backend; "cpu"
  std::vector<std::string> products;  // what they work in, a line each
  double first_loss = 0, last_loss = 0;
  int64_t device_bytes = 0;     // CUDA: in use on the device at the end (LibTorch's allocator keeps its peak); else 0
  int64_t predicted_bytes = 0;  // CUDA: the same by plan_memory()
};

/// Trains a model of random weights with the step that `esmtrain train` runs. Checkpoints and schedule of `config` are
/// not used, data only with options.batches.real_data. Throws DeviceError, DataError.
BenchStepResult bench_step(const RunConfig& config, const BenchStepOptions& options);

/// Times Esm2::forward() to embeddings: a model of random weights without gradients, a batch at a time. A batch is over
/// when its embeddings are in the device's memory.
BenchSpeed bench_forward(const RunConfig& config, const BenchStepOptions& options);

}  // namespace esm::train
