// Last unit: final LayerNorm, dense + GELU + LayerNorm, decoder tied to the embedding, cross entropy. Training computes
// it for scored rows only, in chunks of fixed size, forward and backward in one go: nothing of it is kept.
#pragma once
#include "nn/layers.h"
#include "ops/cross_entropy.h"
#include "precision/describe_plan.h"

namespace esm::nn {

class LmHead {
 public:
  struct Shape {
    int64_t vocabulary = 0, hidden = 0;
    int64_t padded_vocabulary = 0;  // columns of the logits, rows of the decoder that the GEMMs see
    double layer_norm_eps = 1e-5;
    double init_std = 0.02;
  };
  static std::vector<ParamSpec> declare(const Shape& shape);

  /// `embedding`: the unit that owns the tied decoder weight, whose gradient is added to. At most `chunk_rows` rows are
  /// worked on at once.
  LmHead(const Context& context, const UnitStorage& storage, const UnitStorage& embedding, const Shape& shape,
         int64_t chunk_rows, at::ScalarType dtype);

  /// Rows of x in chunks of chunk_rows() (the last one may be shorter).
  struct Scored {
    at::Tensor rows;     // [N] int32, distinct
    at::Tensor targets;  // [N] uint8
    at::Tensor counts;   // [chunks] int32: how many of a chunk's rows there are (on the CPU: all)
  };
  int64_t chunk_rows() const { return chunk_rows_; }

  /// Adds the loss over the scored rows of x [T, D] to `sums` (ops::make_loss_sums()).
  void loss(ops::Workspace& ws, const at::Tensor& x, const Scored& scored, const at::Tensor& sums);
  /// The same (with label smoothing), and gradients: of the parameters, added; of x, written to the scored rows of dx
  /// [T, D], whose other rows are left alone.
  void loss_and_gradient(ops::Workspace& ws, const at::Tensor& x, const Scored& scored, double label_smoothing,
                         const at::Tensor& sums, const at::Tensor& dx);

  /// y [T, D] = final LayerNorm of x.
  void final_norm(ops::Workspace& ws, const at::Tensor& x, const at::Tensor& y) const;
  /// logits [T, V] FP32 of all rows of x.
  void logits(ops::Workspace& ws, const at::Tensor& x, const at::Tensor& logits);

  /// Announces to `ws` what the head will ask for.
  void expect(ops::Workspace& ws) const;
  ops::MemoryPart memory() const;
  /// For the log: FP32 or BF16, whatever the layers do.
  precision::PlannedLinear products() const;

 private:
  /// Buffers of one chunk of N rows; y and z are the outputs of the two LayerNorms.
  struct Chunk {
    at::Tensor x_ND, y_ND, dense_ND, act_ND, z_ND, logits_NV, dlogits_NV, grad_ND, grad2_ND;
    NormStats norm1, norm2;
    Chunk narrow(int64_t rows) const;
  };
  /// body(chunk, rows, targets)
  template <class Body>
  void for_each_chunk(const Scored& scored, const Body& body) const;
  void forward_chunk(ops::Workspace& ws, const Chunk& c) const;
  void backward_chunk(ops::Workspace& ws, const Chunk& c) const;

  /// The bias in FP32, up to date.
  const at::Tensor& bias() const;

  const UnitStorage* storage_;
  size_t bias_index_;
  LayerNorm final_norm_;
  Linear dense_;
  LayerNorm norm_;
  at::Tensor decoder_, ddecoder_;  // [padded vocabulary, D]
  at::Tensor bias_, dbias_;        // [V] FP32: a view of the master weights, or where there are none a copy
  int64_t vocabulary_;
  int64_t chunk_rows_;
  Chunk chunk_;
};

}  // namespace esm::nn
