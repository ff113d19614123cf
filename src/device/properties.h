// What kind of device this is.
#pragma once
#include <cstdint>
#include <string>

namespace esm::device {

struct Properties {
  std::string name;  // "NVIDIA H200"
  int sm_count = 0;
  int compute_capability = 0;  // 90 for 9.0
  int64_t l2_bytes = 0;
  int64_t memory_bytes = 0;
};

/// Of CUDA device `index`. Throws DeviceError when there is none.
Properties properties(int index);

/// Makes `index` the current device of this thread. Throws DeviceError when there is none, or when this program was
/// built for other architectures.
void use_device(int index);

}  // namespace esm::device
