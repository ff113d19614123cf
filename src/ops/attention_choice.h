// Which attention backend serves a run: what each one can do, and which of those that can is the fastest here.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "ops/attention_cuda.h"

namespace esm::ops {

/// Token counts of synthetic proteins: log-normal (mu 5.6, sigma 0.65 of the natural logarithm), clipped to 30 ..
/// max_seqlen, one after the other until `tokens` are full; the last one is cut. Equal for equal arguments.
std::vector<int64_t> protein_lengths(int64_t tokens, int64_t max_seqlen, uint64_t seed);

struct AttentionTiming {
  AttentionKind kind = AttentionKind::kFlash2;
  double microseconds = 0;   // forward and backward of one layer in a CUDA graph, median; 0: not run
  std::string refusal = {};  // why not
};

struct AttentionChoice {
  AttentionKind kind = AttentionKind::kFlash2;
  std::vector<AttentionTiming> timings = {};  // of the candidates, preferred first; empty: there was no choice
  /// One line for the log: "attention: cudnn (cudnn 1,112 us a layer; flash2 1,433 us a layer)".
  std::string text() const;
};

/// Index of the fastest that ran; an earlier one wins unless it is more than 2 % slower. -1: none ran.
int fastest(const std::vector<AttentionTiming>& timings);

/// BF16, unless sizes.deterministic (then deterministic_attention()): times forward and backward of cudnn and flash2 as
/// they run in a step (in a CUDA graph, one layer) on a pack of synthetic proteins, replays in turn, and picks the
/// faster; simple where the device has neither. FP32: simple. `type` is that of qkv; `stream` is not the default
/// stream. Call it at the start of a run, before the model is allocated: it needs memory for one layer's attention per
/// candidate, gives all of it back, and waits for the device; some tenths of a second. A candidate that fails (no
/// memory, no plan) is left out with its reason; DeviceError when all of them fail. The choice may differ between runs
/// and ranks, and with it the last bits: make it once, on one rank, and keep it with the run's state.
AttentionChoice choose_attention(const AttentionSizes& sizes, at::ScalarType type, device::StreamHandle stream);

}  // namespace esm::ops
