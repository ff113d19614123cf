// What one linear layer really works in on a device: as its recipe says, emulated, or in BF16 because of its sizes.
#pragma once
#include <cstdint>
#include <string>

#include "precision/recipe.h"

namespace esm::precision {

enum class Path : uint8_t {
  kPlain,     // nothing is quantized
  kHardware,  // quantized, and multiplied in codes by tensor cores
  kEmulated,  // quantized, dequantized, multiplied in a wider type
};

struct LinearFormats {
  Operand x, weight, dy;  // what is quantized, for both GEMMs that read it
  GemmFormats forward, dgrad, wgrad;
  Path path = Path::kPlain;
  /// Why it is not as the recipe says: "in = 33 is no multiple of 16: BF16"; empty: it is.
  std::string why;

  const GemmFormats& gemm(GemmRole role) const;
  bool quantized() const { return path != Path::kPlain; }
  /// MXFP8 or NVFP4.
  bool small_groups() const { return x.grouping == Grouping::kMx32 || x.grouping == Grouping::kNv16; }
};

/// y[tokens, out] = x[tokens, in] weight[out, in]^T and its two gradients on a device of compute capability
/// `capability` (90 for 9.0; 0: the CPU, which emulates every quantized recipe). `tokens` are the rows of the operands,
/// padding included. On CUDA, sizes that FP8 products or the quantizing kernels cannot take are BF16; MXFP8 and NVFP4
/// are emulated before capability 10.0 and where sizes are no multiples of 32; DeviceError, with what to use instead,
/// where the device lacks what an FP8 recipe needs.
LinearFormats resolve(const Recipe& recipe, int64_t out, int64_t in, int64_t tokens, int capability);

/// The same, emulated because of `lacking`: "cuBLASLt has no kernel for it".
LinearFormats emulated_instead(const LinearFormats& formats, const std::string& lacking);

}  // namespace esm::precision
