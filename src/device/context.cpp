#include "device/context.h"

#include "device/cuda_queue.h"
#include "device/properties.h"

namespace esm {
namespace device {
namespace {

int made_current(int index) {
  use_device(index);
  return index;
}

}  // namespace

CudaQueue::CudaQueue(int index_, const GemmOptions& options) : index(made_current(index_)), gemm(options) {}

}  // namespace device

device::StreamHandle Context::stream() const { return cuda ? cuda->stream.get() : nullptr; }

Context make_cuda_context(int index, int threads, const device::GemmOptions& gemm) {
  return {.device = DeviceKind::kCuda,
          .device_index = index,
          .compute_capability = device::properties(index).compute_capability,
          .threads = threads,
          .cuda = std::make_shared<device::CudaQueue>(index, gemm)};
}

void synchronize(const Context& context) {
  if (context.cuda) context.cuda->stream.synchronize();
}

}  // namespace esm
