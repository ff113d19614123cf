// What a process uses of one CUDA device.
#pragma once
#include "device/gemm.h"
#include "device/stream.h"

namespace esm::device {

struct CudaQueue {
  CudaQueue(int index, const GemmOptions& options);

  int index;  // made current before anything below is
  Stream stream;
  GemmContext gemm;  // for `stream` only
};

}  // namespace esm::device
