// Tensors in tests.
#pragma once
#include <span>
#include <vector>

#include "ops/aten.h"

namespace esm::test {

/// A 1-D tensor of these values.
template <class T>
at::Tensor tensor_of(const std::vector<T>& values, at::ScalarType type) {
  const at::Tensor view =
      at::from_blob(const_cast<T*>(values.data()), {static_cast<int64_t>(values.size())}, at::TensorOptions(type));
  return view.clone();
}
inline at::Tensor ints(const std::vector<int32_t>& values) { return tensor_of(values, at::kInt); }
inline at::Tensor byte_values(const std::vector<uint8_t>& values) { return tensor_of(values, at::kByte); }

/// Values of a tensor of any float type, as FP64.
inline std::vector<double> values(const at::Tensor& x) {
  const at::Tensor wide = x.detach().cpu().to(at::kDouble).contiguous();
  const double* p = wide.const_data_ptr<double>();
  return {p, p + wide.numel()};
}

/// Raw bytes, for tests of bit equality.
inline std::vector<uint8_t> bytes(const at::Tensor& x) {
  const at::Tensor dense = x.cpu().contiguous();
  const auto* p = static_cast<const uint8_t*>(dense.const_data_ptr());
  return {p, p + dense.numel() * dense.element_size()};
}

}  // namespace esm::test
