// Packed bidirectional attention on a CUDA device: several libraries behind one interface, chosen when a model is
// built. Formulas and legend as in ops/attention.h. All backends are graph-safe: after the first call nothing is
// allocated outside LibTorch's caching allocator (flash2; capture inside a GraphPool::Scope) and nothing waits for the
// device.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "device/handles.h"
#include "ops/aten.h"
#include "ops/attention_sizes.h"

namespace esm::ops {

enum class AttentionKind {
  kFlash2,  // FlashAttention-2 inside LibTorch: the oracle of the others
  kCudnn,   // cuDNN's packed plans, built once
  kSimple,  // own kernels without tensor cores, slow
};
std::string_view attention_kind_name(AttentionKind kind);
/// Inverse of attention_kind_name(); none for an unknown name.
std::optional<AttentionKind> find_attention_kind(std::string_view name);

/// What a backend can do; head dimensions are multiples of 8 everywhere. Tested on sm_90: 16, 24, 32, 64, 80, 96, 128
/// with all of them, 192 and 256 with flash2 and simple.
struct AttentionSupport {
  int64_t max_head_dim = 0;
  int min_capability = 0, end_capability = 1000;  // of the device, 90 for 9.0: min <= capability < end
  bool fp32 = false;                              // BF16 always
};
AttentionSupport attention_support(AttentionKind kind);

struct AttentionTarget {
  int64_t head_dim = 0;
  int capability = 0;
  bool fp32 = false;
};
/// Why `kind` cannot serve that head dimension on that device: "takes head dimensions up to 128". Empty: it can.
std::string attention_refusal(AttentionKind kind, const AttentionTarget& target);

/// The backend of deterministic runs: by rule, since what is chosen by timing may differ between runs. flash2 where it
/// can do `target`, else simple. cuDNN can be asked for, but its deterministic backward wants capacity x H x
/// max_seqlen^2 x 2 bytes of workspace.
AttentionKind deterministic_attention(const AttentionTarget& target);

/// Tensors are contiguous, on the current device, BF16 (kSimple: or FP32). `lse` is FP32 [H * T] in the backend's own
/// order: give the same one to backward().
struct AttentionForwardCuda {
  at::Tensor qkv;  // [T, 3, H, K], q and k rotated
  at::Tensor out;  // [T, H, K]
  at::Tensor lse;
  at::Tensor workspace;  // uint8, at least workspace_bytes(); may be shared with anything between calls
  device::StreamHandle stream = nullptr;
};

struct AttentionBackwardCuda {
  at::Tensor qkv, out, dout, lse;
  at::Tensor dqkv;  // [T, 3, H, K], written whole
  at::Tensor workspace;
  device::StreamHandle stream = nullptr;
};

class AttentionBackend {
 public:
  virtual ~AttentionBackend() = default;
  virtual std::string_view name() const = 0;
  virtual int64_t workspace_bytes() const = 0;

  /// Where the sequences of the following calls lie: cu_seqlens int32 [capacity + 1] on the device, cu_seqlens[0] = 0,
  /// non-decreasing, entries after the last sequence repeat T. Its content may change between graph replays, its
  /// address may not. Once a batch, on the stream of the calls and, with a graph, inside it.
  virtual void set_batch(const at::Tensor& cu_seqlens, device::StreamHandle stream) = 0;
  virtual void forward(const AttentionForwardCuda& a) = 0;
  virtual void backward(const AttentionBackwardCuda& a) = 0;
};

/// Throws DeviceError when the backend cannot do these sizes on the current device. Takes a tenth of a second (cudnn).
std::unique_ptr<AttentionBackend> make_attention_backend(AttentionKind kind, const AttentionSizes& sizes);

}  // namespace esm::ops
