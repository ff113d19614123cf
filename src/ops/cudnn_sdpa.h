// Packed attention by cuDNN, over plain device pointers: the one include seam of cuDNN and its C++ frontend. Used by
// attention_cudnn_cuda.cpp only.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "device/handles.h"
#include "device/versions.h"
#include "ops/attention_sizes.h"

namespace esm::ops {

/// Where each sequence begins, on the device, as cuDNN wants it (kernels/attention_offsets.h): [capacity] lengths and
/// [capacity + 1] first elements of the rows of qkv, out and lse.
struct CudnnSequences {
  const int32_t* lengths = nullptr;
  const int32_t* qkv = nullptr;
  const int32_t* out = nullptr;
  const int32_t* lse = nullptr;
};

/// One forward and one backward plan of fixed sizes. BF16, all pointers 16-byte aligned, lse token-major.
/// Not thread-safe. Errors: DeviceError with cuDNN's text.
class CudnnSdpa {
 public:
  /// Builds both plans: takes a second or two.
  explicit CudnnSdpa(const AttentionSizes& sizes);
  ~CudnnSdpa();
  CudnnSdpa(const CudnnSdpa&) = delete;
  CudnnSdpa& operator=(const CudnnSdpa&) = delete;

  int64_t forward_workspace_bytes() const;
  int64_t backward_workspace_bytes() const;

  struct Forward {
    const void* qkv = nullptr;  // [T, 3, H, K]
    void* out = nullptr;        // [T, H, K]
    float* lse = nullptr;       // [T, H]
    void* workspace = nullptr;
  };
  void forward(const CudnnSequences& sequences, const Forward& args, device::StreamHandle stream);

  struct Backward {
    const void* qkv = nullptr;
    const void* out = nullptr;
    const void* dout = nullptr;  // [T, H, K]
    const float* lse = nullptr;
    void* dqkv = nullptr;  // [T, 3, H, K]
    void* workspace = nullptr;
  };
  void backward(const CudnnSequences& sequences, const Backward& args, device::StreamHandle stream);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// cuDNN as built with and as found; none in a build without CUDA.
std::vector<device::LibraryVersion> cudnn_versions();

}  // namespace esm::ops
