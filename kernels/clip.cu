#include "kernels/clip.h"

#include "kernels/launch.cuh"

namespace esm::kernels {
namespace {

__global__ void clip_kernel(ClipArgs a) {
  double squares = 0;
  for (int i = 0; i < a.n_sums; ++i) squares += a.sums_of_squares[i];
  const double scored = a.losses->scored;
  ClipResult result{.losses = *a.losses};
  if (scored > 0) {
    const double per_row = 1.0 / scored;
    const double loss = a.losses->loss * per_row, norm = sqrt(squares) * per_row;
    result.grad_norm = norm;
    if (isfinite(loss) && isfinite(norm)) {
      result.skip = 0;
      const double factor = a.max_norm > 0 ? fmin(1.0, a.max_norm / (norm + 1e-6)) : 1.0;
      result.grad_scale = static_cast<float>(per_row * factor);
    }
  }
  *a.result = result;
}

}  // namespace

cudaError_t launch(const ClipArgs& args, cudaStream_t stream) {
  return start(clip_kernel, dim3(1), dim3(1), 0, stream, args);
}

}  // namespace esm::kernels
