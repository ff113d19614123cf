#include "kernels/cast.h"

#include "kernels/launch.cuh"
#include "kernels/vector.cuh"

namespace esm::kernels {
namespace {

constexpr int kThreads = 256, kUnroll = 4;

template <class From, class To>
__global__ void __launch_bounds__(kThreads) cast_kernel(const From* from, To* to, int64_t vectors) {
  const int64_t first = blockIdx.x * static_cast<int64_t>(kThreads * kUnroll) + threadIdx.x;
  Vec8<From> raw[kUnroll];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u)
    if (first + u * kThreads < vectors) raw[u] = load8(from + 8 * (first + u * kThreads));
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    if (first + u * kThreads >= vectors) break;
    float e[8];
    unpack(raw[u], e);
    store8(to + 8 * (first + u * kThreads), e);
  }
}

dim3 grid_of(int64_t n) { return dim3(static_cast<unsigned>(ceil_div(n / 8, kThreads * kUnroll))); }

}  // namespace

cudaError_t launch(const CastArgs& args, cudaStream_t stream) {
  if (args.n <= 0) return cudaSuccess;
  if (args.n % 8 != 0 || !aligned16(args.from) || !aligned16(args.to)) return cudaErrorInvalidValue;
  return with_activation(args.from_dtype, [&](auto from) {
    return with_activation(args.to_dtype, [&](auto to) {
      using From = typename decltype(from)::type;
      using To = typename decltype(to)::type;
      return start(cast_kernel<From, To>, grid_of(args.n), dim3(kThreads), 0, stream,
                   static_cast<const From*>(args.from), static_cast<To*>(args.to), args.n / 8);
    });
  });
}

}  // namespace esm::kernels
