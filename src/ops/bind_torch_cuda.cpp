#include <c10/cuda/CUDAStream.h>

#include "ops/place.h"

namespace esm::ops {

void bind_torch(const Context& context) {
  if (context.sketch) return;
  if (at::get_num_threads() != context.threads) at::set_num_threads(context.threads);
  if (!context.on_cuda()) return;
  c10::cuda::setCurrentCUDAStream(
      c10::cuda::getStreamFromExternal(context.stream(), static_cast<c10::DeviceIndex>(context.device_index)));
}

}  // namespace esm::ops
