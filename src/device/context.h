// What every operation is told first: where it runs. No hidden device state anywhere.
#pragma once
#include <cstdint>
#include <memory>

#include "device/handles.h"

namespace esm {

namespace device {
struct CudaQueue;    // device/cuda_queue.h
class HostClock;     // device/phase_clock.h
struct GemmOptions;  // device/gemm.h
}  // namespace device

enum class DeviceKind { kCpu, kCuda };

struct Context {
  DeviceKind device = DeviceKind::kCpu;
  int device_index = 0;                          // CUDA ordinal; 0 on the CPU
  int compute_capability = 0;                    // CUDA: 90 for 9.0
  int threads = 1;                               // CPU threads of tensor operations
  std::shared_ptr<device::CudaQueue> cuda = {};  // exactly with kCuda, but for a sketch: make_cuda_context()
  /// For plans: what is made has sizes and no memory (ATen's meta tensors), and no device is needed. It computes
  /// nothing.
  bool sketch = false;
  std::shared_ptr<device::HostClock> host_clock = {};  // CPU: only where the time of operations is looked at

  bool on_cuda() const { return device == DeviceKind::kCuda; }
  /// Where this context queues its device work; nullptr on the CPU.
  device::StreamHandle stream() const;
};

/// Makes `index` the current device of this thread and opens a stream and cuBLASLt on it. One a process: copies of the
/// context share them. Throws DeviceError when there is no such device or this build has no CUDA.
Context make_cuda_context(int index, int threads, const device::GemmOptions& gemm);

/// Blocks until all work that `context` has queued is done; nothing to wait for on the CPU.
void synchronize(const Context& context);

}  // namespace esm
