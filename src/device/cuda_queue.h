// What a process uses of one CUDA device.
#pragma once
#include <memory>

#include "device/gemm.h"
#include "device/phase_clock.h"
#include "device/stream.h"

namespace esm::device {

struct CudaQueue {
  CudaQueue(int index, const GemmOptions& options);

  int index;  // made current before anything below is
  Stream stream;
  GemmContext gemm;                   // for `stream` only
  std::unique_ptr<PhaseClock> clock;  // only while the time of operations is looked at
};

}  // namespace esm::device
