#include "base/check.h"
#include "ops/cuda_halves.h"

namespace esm::ops::cuda {
namespace {

[[noreturn]] void no_cuda() { fail<DeviceError>("this program was built without CUDA: it has no GPU kernels"); }

}  // namespace

void linear(Workspace&, const LinearForward&) { no_cuda(); }
void linear_dgrad(Workspace&, const LinearDgrad&) { no_cuda(); }
void linear_wgrad(Workspace&, const LinearWgrad&) { no_cuda(); }
std::string lacking_product(const Context&, const std::vector<device::GemmDesc>&) { no_cuda(); }
void add_column_sums(Workspace&, const at::Tensor&, const at::Tensor&) { no_cuda(); }
void layer_norm(Workspace&, const LayerNormForward&) { no_cuda(); }
void layer_norm_backward(Workspace&, const LayerNormBackward&) { no_cuda(); }
void gelu(Workspace&, Gelu, const at::Tensor&, const GemmOperand&) { no_cuda(); }
void gelu_backward(Workspace&, Gelu, const GeluBackward&) { no_cuda(); }
void quantize_operand(Workspace&, const GemmOperand&) { no_cuda(); }
void count_codes(const Context&, const GemmOperand&, const at::Tensor&) { no_cuda(); }
void moments(const Context&, const at::Tensor&, const at::Tensor&, const at::Tensor&) { no_cuda(); }
void close_amax(const Context&, const kernels::AmaxTables&, const at::Tensor&, const at::Tensor&) { no_cuda(); }
void pack_positions(const Context&, const Pack&) { no_cuda(); }
void rotary(Workspace&, const Pack&, const RotaryTable&, const RotaryArgs&) { no_cuda(); }
void begin_attention(Workspace&, const Pack&, const AttentionSetup&) { no_cuda(); }
void attention(Workspace&, const Pack&, const AttentionForward&) { no_cuda(); }
void attention_backward(Workspace&, const Pack&, const AttentionBackward&) { no_cuda(); }
void embedding_factors(const Context&, const Pack&, bool, const at::Tensor&) { no_cuda(); }
void embedding(const Context&, const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&) {
  no_cuda();
}
void embedding_backward(Workspace&, const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&) {
  no_cuda();
}
void gather_rows(const Context&, const at::Tensor&, const Rows&, const at::Tensor&) { no_cuda(); }
void scatter_rows(const Context&, const at::Tensor&, const Rows&, const at::Tensor&) { no_cuda(); }
void cross_entropy(Workspace&, const CrossEntropyArgs&) { no_cuda(); }
// A build without CUDA knows its kernels' needs no closer than this (a 3B model's); that will do for a plan.
constexpr int64_t kPartialFloats = 4 << 20;
int64_t column_sums_floats(int64_t, int64_t) { return kPartialFloats; }
int64_t layer_norm_backward_floats(int64_t, int64_t) { return kPartialFloats; }
int64_t gelu_backward_floats(int64_t, int64_t) { return kPartialFloats; }
int64_t quantize_floats(const QuantizeSizes&) { return kPartialFloats; }
int64_t rotary_sums_floats(int64_t, int64_t, int64_t) { return kPartialFloats; }
int64_t embedding_backward_floats(int64_t, int64_t, int64_t) { return kPartialFloats; }
int64_t cross_entropy_floats() { return kPartialFloats; }

void cast(const Context&, const at::Tensor&, const at::Tensor&) { no_cuda(); }
void split_weights(const Context&, const at::Tensor&, const at::Tensor&, const at::Tensor&) { no_cuda(); }
void join_weights(const Context&, const at::Tensor&, const at::Tensor&, const at::Tensor&) { no_cuda(); }
void adamw(const Context&, const AdamWArgs&) { no_cuda(); }
int64_t sums_of_squares(size_t) { return 1; }
int64_t sum_of_squares_workspace() { return 1; }
void sum_of_squares(const Context&, std::span<const at::Tensor>, const at::Tensor&, const at::Tensor&) { no_cuda(); }
void decide_update(const Context&, const DecideUpdate&) { no_cuda(); }

}  // namespace esm::ops::cuda
