// For the log: what the linear layers of a model work in.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "precision/linear_formats.h"

namespace esm::precision {

struct PlannedLinear {
  int64_t layer = 0;  // from 1; 0: outside the encoder layers
  std::string name;   // "qkv"; outside the layers "head"
  Precision recipe;   // what was asked for
  LinearFormats formats;
};

/// A line for what works alike, in order of first appearance:
///   layers 2-33: qkv, out, fc1, fc2: forward E4M3 (tensor, current) x E4M3 (tensor, current) to BF16, fast sums; dgrad
///   ...; wgrad ...
///   layer 1: BF16
///   head: BF16
/// (without names where the whole layer is plain), then one for each reason why something is not as its recipe says:
///   layers 2-33: fc1: fp8_current: out = 33 is no multiple of 16: BF16
/// and one where the hardware path of MXFP8 and NVFP4 is taken, which nobody has run yet.
std::vector<std::string> describe_plan(std::span<const PlannedLinear> linears);

}  // namespace esm::precision
