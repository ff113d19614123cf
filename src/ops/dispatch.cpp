#include "ops/dispatch.h"

namespace esm::ops {

bool on_cuda(const Context& context, std::string_view operation, std::initializer_list<at::Tensor> tensors) {
  const bool cuda = context.on_cuda();
  for (const at::Tensor& tensor : tensors)
    if (tensor.defined() && !context.sketch && (cuda ? !tensor.is_cuda() : !tensor.is_cpu()))
      fail<DeviceError>("{}: expected a tensor on {}, found one on {}", operation, cuda ? "the CUDA device" : "the CPU",
                        tensor.device().str());
  return cuda;
}

namespace {

void* raw(const at::Tensor& tensor, at::ScalarType type) {
  ESM_CHECK(tensor.defined() && tensor.scalar_type() == type && tensor.is_contiguous(),
            "a contiguous tensor of type {} is wanted", c10::toString(type));
  return tensor.data_ptr();
}

}  // namespace

template <>
float* data<float>(const at::Tensor& tensor) {
  return static_cast<float*>(raw(tensor, at::kFloat));
}
template <>
double* data<double>(const at::Tensor& tensor) {
  return static_cast<double*>(raw(tensor, at::kDouble));
}
template <>
uint8_t* data<uint8_t>(const at::Tensor& tensor) {
  return static_cast<uint8_t*>(raw(tensor, at::kByte));
}
template <>
int32_t* data<int32_t>(const at::Tensor& tensor) {
  return static_cast<int32_t*>(raw(tensor, at::kInt));
}
template <>
uint16_t* data<uint16_t>(const at::Tensor& tensor) {
  return static_cast<uint16_t*>(raw(tensor, tensor.scalar_type() == at::kShort ? at::kShort : at::kBFloat16));
}
template <>
cpu::Bf16* data<cpu::Bf16>(const at::Tensor& tensor) {
  return static_cast<cpu::Bf16*>(raw(tensor, at::kBFloat16));
}

}  // namespace esm::ops
