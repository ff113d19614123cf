// Which kernels an operation calls: the one place that knows devices. An operation checks its arguments, asks
// on_cuda(), and calls its half in ops/cuda_halves.h or, through with_element(), in ops/cpu_kernels.h.
#pragma once
#include <initializer_list>
#include <string_view>

#include "base/check.h"
#include "device/context.h"
#include "ops/aten.h"
#include "ops/cpu_kernels.h"

namespace esm::ops {

/// True when `context` is a CUDA device. DeviceError unless every (defined) tensor lies where the context works.
bool on_cuda(const Context& context, std::string_view operation, std::initializer_list<at::Tensor> tensors);

/// A tensor's elements as T; checks type and contiguity.
template <class T>
T* data(const at::Tensor& tensor);
template <>
float* data<float>(const at::Tensor& tensor);
template <>
double* data<double>(const at::Tensor& tensor);
template <>
uint8_t* data<uint8_t>(const at::Tensor& tensor);
template <>
int32_t* data<int32_t>(const at::Tensor& tensor);
template <>
uint16_t* data<uint16_t>(const at::Tensor& tensor);  // bits of BF16 or of remainders (kShort)
template <>
cpu::Bf16* data<cpu::Bf16>(const at::Tensor& tensor);

/// nullptr for an undefined tensor.
template <class T>
T* data_or_null(const at::Tensor& tensor) {
  return tensor.defined() ? data<T>(tensor) : nullptr;
}

/// Calls body(T{}) with the CPU element type of `like`: float or cpu::Bf16.
template <class Body>
void with_element(const at::Tensor& like, const Body& body) {
  if (like.scalar_type() == at::kBFloat16) return body(cpu::Bf16{});
  ESM_CHECK(like.scalar_type() == at::kFloat, "activations are FP32 or BF16");
  body(float{});
}

}  // namespace esm::ops
