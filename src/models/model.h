// What the trainer knows of a model. It knows no ranks: it adds gradients of summed losses; dividing is the
// optimizer's.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/batch.h"
#include "nn/recompute.h"
#include "nn/storage.h"
#include "ops/attention_cuda.h"
#include "ops/cross_entropy.h"
#include "ops/memory_part.h"
#include "ops/scales.h"

namespace esm::models {

/// Sums over scored tokens; add them up over micro-batches and ranks, then divide by n_scored.
struct LossSums {
  double loss_sum = 0;  // nats
  int64_t n_scored = 0;
  int64_t n_correct = 0;  // the true token has the highest logit (the lowest id wins a tie)

  LossSums& operator+=(const LossSums& other) {
    loss_sum += other.loss_sum;
    n_scored += other.n_scored;
    n_correct += other.n_correct;
    return *this;
  }
};

struct ModelOptions {
  precision::Precision precision = precision::Precision::kFp32;
  /// Of each encoder layer; empty: `precision` for all. Activations have one type: FP32 mixes with nothing.
  std::vector<precision::Precision> layer_precision;
  /// Of delayed scaling.
  precision::DelayedScaling delay;
  /// T, the largest batch.budget(); a multiple of 128. Activation buffers are allocated once for it.
  int64_t tokens_per_batch = 8192;
  /// Longest real segment of a batch; 0: tokens_per_batch.
  int64_t max_tokens = 0;
  /// Gradients and saved activations exist only with this.
  bool training = true;
  /// Of weights and moments; FP32 masters are the only ones with precision kFp32.
  precision::StateFormats formats;
  /// What is not kept for backward but computed again there; changes no bit of the result.
  nn::Recompute recompute = nn::Recompute::kNone;
  /// The first so many layers, of which this is true; 0: all.
  int64_t recompute_layers = 0;
  double label_smoothing = 0;
  /// Rotary inverse frequencies [head_dim / 2] of the imported file; empty: computed as the config says.
  std::vector<float> inv_freq;
  /// Attention on a CUDA device; none: the fastest one that can do it.
  std::optional<ops::AttentionKind> attention;
  /// On a CUDA device accumulate() is replayed as a graph; changes no bit of the result.
  bool graphs = false;
  /// On a CUDA device: bit-equal gradients from run to run.
  bool deterministic = false;
};

class Model {
 public:
  virtual ~Model() = default;

  /// In forward order: embedding, layers, head. Same objects for the model's lifetime.
  virtual std::span<nn::UnitStorage* const> units() = 0;

  /// Adds the gradient of the sum of token losses to kGrad of every unit, and the sums to loss_sums(). batch.budget()
  /// may be anything up to T that is a multiple of 128. With label smoothing the loss is the smoothed one. A batch
  /// without scored rows adds nothing. Bit-equal from run to run for one number of threads. On a CUDA device the work
  /// is queued, not awaited.
  virtual void accumulate(const data::Batch& batch) = 0;
  /// [3] FP64 where the model works, the same memory all the time: kernels::LossSums since begin_step().
  virtual const at::Tensor& loss_sums() const = 0;
  /// Scales of quantized products; nullptr when there are none.
  virtual ops::Scales* scales() = 0;
  /// Whether accumulate() looks at what quantizing loses. Changes no result.
  virtual void watch(bool on) = 0;
  /// Names of what is looked at: operands of quantized products, "layers.0.attention.qkv.x" (.dy, .weight).
  virtual const std::vector<std::string>& watched() const = 0;
  /// Queues what the last accumulate() since watch(true) saw, before end_step(): [n] FP64 where the model works,
  ///   amax and then scale, of each of scales()->names();
  ///   codes that are 0, codes at the end of the range, codes in all: of each of watched();
  ///   sum, sum of squares (of the output activations), L2 norm of the gradient of the summed loss: of each layer;
  ///   elements of an output.
  virtual at::Tensor observation() = 0;
  /// Queues what ends a step, after the last accumulate(): amax values of all ranks into the histories.
  virtual void end_step() = 0;
  /// Queues what makes gradients and sums 0 as far as accumulate() and update can tell: gradients that the first
  /// accumulate() writes whole may keep old values until then.
  virtual void begin_step() = 0;
  /// accumulate() of one batch alone, as far as the sums go. Waits for the device.
  LossSums forward_backward(const data::Batch& batch) {
    loss_sums().zero_();
    accumulate(batch);
    const ops::LossSums sums = ops::read_loss_sums(loss_sums());
    return {.loss_sum = sums.loss, .n_scored = sums.scored, .n_correct = sums.correct};
  }

  /// The plain (unsmoothed) loss; touches no gradient.
  virtual LossSums evaluate(const data::Batch& batch) = 0;

  /// All buffers that are there by now, parameters left out. After the first batch nothing is added, unless one has
  /// more segments or scored rows than any before. A model on a sketch (Context::sketch) tells what a real one would
  /// hold after a batch of proteins.
  virtual std::vector<ops::MemoryPart> memory() const = 0;

  void init_parameters(uint64_t seed) {
    for (nn::UnitStorage* unit : units()) unit->init(seed);
  }
  void sync_compute() {
    for (nn::UnitStorage* unit : units()) unit->sync_compute();
  }
  void zero_grad() {
    for (nn::UnitStorage* unit : units()) unit->zero_grad();
  }
  /// Trained parameters, padding not counted.
  int64_t parameter_count() {
    int64_t count = 0;
    for (nn::UnitStorage* unit : units()) count += unit->numel();
    return count;
  }
};

}  // namespace esm::models
