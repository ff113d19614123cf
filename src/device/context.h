// What every operation is told first: where it runs. No hidden device state anywhere.
#pragma once
#include <cstdint>

namespace esm {

enum class DeviceKind { kCpu, kCuda };

struct Context {
  DeviceKind device = DeviceKind::kCpu;
  int device_index = 0;  // CUDA ordinal; 0 on the CPU
  int threads = 1;       // CPU threads of tensor operations
};

}  // namespace esm
