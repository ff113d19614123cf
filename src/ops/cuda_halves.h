// The CUDA halves of the operations, which have checked places by then: one x_cuda.cpp for each x.cpp; in a build
// without CUDA cuda_halves_none.cpp. They queue kernels on the context's stream and wait for nothing, unless said.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "device/gemm_desc.h"
#include "kernels/fp8_scale.h"
#include "ops/adamw.h"
#include "ops/attention.h"
#include "ops/cross_entropy.h"
#include "ops/gelu.h"
#include "ops/layer_norm.h"
#include "ops/linear.h"
#include "ops/pack.h"
#include "ops/rotary.h"
#include "ops/weights.h"
#include "ops/workspace.h"

namespace esm::ops::cuda {

void linear(Workspace& ws, const LinearForward& a);
void linear_dgrad(Workspace& ws, const LinearDgrad& a);
void linear_wgrad(Workspace& ws, const LinearWgrad& a);
std::string lacking_product(const Context& context, const std::vector<device::GemmDesc>& products);
void add_column_sums(Workspace& ws, const at::Tensor& x, const at::Tensor& sums);

void layer_norm(Workspace& ws, const LayerNormForward& a);
void layer_norm_backward(Workspace& ws, const LayerNormBackward& a);
void gelu(Workspace& ws, Gelu form, const at::Tensor& x, const GemmOperand& y);
void gelu_backward(Workspace& ws, Gelu form, const GeluBackward& a);

void quantize_operand(Workspace& ws, const GemmOperand& x);
int64_t quantize_floats(const QuantizeSizes& sizes);
void count_codes(const Context& context, const GemmOperand& x, const at::Tensor& counts);
void moments(const Context& context, const at::Tensor& x, const at::Tensor& counted, const at::Tensor& result);
void close_amax(const Context& context, const kernels::AmaxTables& tables, const at::Tensor& rules,
                const at::Tensor& arrived);

void pack_positions(const Context& context, const Pack& pack);
void rotary(Workspace& ws, const Pack& pack, const RotaryTable& table, const RotaryArgs& a);
void begin_attention(Workspace& ws, const Pack& pack, const AttentionSetup& setup);
void attention(Workspace& ws, const Pack& pack, const AttentionForward& a);
void attention_backward(Workspace& ws, const Pack& pack, const AttentionBackward& a);

void embedding_factors(const Context& context, const Pack& pack, bool token_dropout, const at::Tensor& factors);
void embedding(const Context& context, const at::Tensor& ids, const at::Tensor& factors, const at::Tensor& weight,
               const at::Tensor& y);
void embedding_backward(Workspace& ws, const at::Tensor& ids, const at::Tensor& factors, const at::Tensor& dy,
                        const at::Tensor& dweight);
void gather_rows(const Context& context, const at::Tensor& from, const Rows& rows, const at::Tensor& to);
void scatter_rows(const Context& context, const at::Tensor& from, const Rows& rows, const at::Tensor& to);
void cross_entropy(Workspace& ws, const CrossEntropyArgs& a);

/// What the operations above ask of Workspace::kPartials, in floats.
int64_t column_sums_floats(int64_t rows, int64_t cols);
int64_t layer_norm_backward_floats(int64_t rows, int64_t cols);
int64_t gelu_backward_floats(int64_t rows, int64_t cols);
int64_t rotary_sums_floats(int64_t tokens, int64_t heads, int64_t head_dim);
int64_t embedding_backward_floats(int64_t rows, int64_t cols, int64_t vocabulary);
int64_t cross_entropy_floats();

void cast(const Context& context, const at::Tensor& from, const at::Tensor& to);
void split_weights(const Context& context, const at::Tensor& weights, const at::Tensor& bf16,
                   const at::Tensor& remainder);
void join_weights(const Context& context, const at::Tensor& bf16, const at::Tensor& remainder,
                  const at::Tensor& weights);
void adamw(const Context& context, const AdamWArgs& a);

/// FP64 sums that sum_of_squares() makes of so many tensors, and bytes of its workspace.
int64_t sums_of_squares(size_t tensors);
int64_t sum_of_squares_workspace();
void sum_of_squares(const Context& context, std::span<const at::Tensor> tensors, const at::Tensor& workspace,
                    const at::Tensor& squares);
struct DecideUpdate {
  std::span<const at::Tensor> gradients;
  at::Tensor squares, loss_sums, lr;
  double max_norm, beta1, beta2;
  at::Tensor numbers;
};
void decide_update(const Context& context, const DecideUpdate& a);

}  // namespace esm::ops::cuda
