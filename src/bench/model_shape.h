// The sizes of a training step that its kernels and matrix products have.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "device/gemm_fp8.h"

namespace esm::bench {

struct ModelShape {
  int64_t layers = 0, hidden = 0, heads = 0, ffn = 0;
  int64_t tokens = 0;      // slots of a micro-batch
  int64_t max_tokens = 0;  // of a sequence
  int64_t head_rows = 0;   // scored rows that the head takes at once
  int64_t vocabulary = 33, padded_vocabulary = 64;
  DType dtype = DType::kBF16;  // of activations and operands; gradients of weights are FP32
  bool tanh_gelu = false;

  int64_t head_dim() const { return hidden / heads; }
  /// Parameters of an encoder layer, rounded up as flat storage is.
  int64_t layer_parameters() const;
};

/// Throws ConfigError when our CUDA kernels do not take these sizes.
void check(const ModelShape& shape);

struct NamedGemm {
  std::string name;  // "qkv forward"
  device::GemmDesc desc;
  bool separate_c = false;  // the C is another matrix (the residual stream)
  bool in_layer = true;     // once an encoder layer; else in the head
};

/// The products of one encoder layer (four linears, three roles each) and of the head, as the model calls them: bias
/// and residual in the forward epilogue, weight gradients accumulated in FP32, logits in FP32.
std::vector<NamedGemm> model_gemms(const ModelShape& shape);

/// A way to multiply in FP8.
struct Fp8Mode {
  const char* name;                // "one scale a tensor, fast accumulation"
  device::GemmScale weight, rest;  // in wgrad both sides have `rest`
  DType gradient;                  // of dY
  bool fast_accumulation;
};
std::span<const Fp8Mode> fp8_modes();

/// The products of one encoder layer in FP8, whether FP8 can take them or not (device::fp8_obstacle()); the weight
/// gradients accumulated in FP32. The head stays as it is.
std::vector<NamedGemm> model_fp8_gemms(const ModelShape& shape, const Fp8Mode& mode);

}  // namespace esm::bench
