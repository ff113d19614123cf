// Tensors in tests.
#pragma once
#include <span>
#include <vector>

#include "ops/aten.h"

namespace esm::test {

/// Values of a tensor of any float type, as FP64.
inline std::vector<double> values(const at::Tensor& x) {
  const at::Tensor wide = x.detach().to(at::kDouble).contiguous();
  const double* p = wide.const_data_ptr<double>();
  return {p, p + wide.numel()};
}

/// Raw bytes, for tests of bit equality.
inline std::vector<uint8_t> bytes(const at::Tensor& x) {
  const at::Tensor dense = x.contiguous();
  const auto* p = static_cast<const uint8_t*>(dense.const_data_ptr());
  return {p, p + dense.numel() * dense.element_size()};
}

}  // namespace esm::test
