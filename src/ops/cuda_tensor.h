// Tensors as the Args structs of kernels/ want them. For _cuda.cpp files.
#pragma once
#include "base/check.h"
#include "base/dtype.h"
#include "ops/aten.h"

namespace esm::ops::cuda {

inline DType dtype_of(const at::Tensor& x) {
  ESM_CHECK(x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16, "activations are FP32 or BF16");
  return x.scalar_type() == at::kFloat ? DType::kF32 : DType::kBF16;
}

/// Address of a contiguous tensor; nullptr of an undefined one.
inline void* raw(const at::Tensor& x) {
  if (!x.defined()) return nullptr;
  ESM_CHECK(x.is_contiguous(), "a contiguous tensor is wanted");
  return x.data_ptr();
}

template <class T>
T* pointer(const at::Tensor& x) {
  if (!x.defined()) return nullptr;
  ESM_CHECK(x.is_contiguous(), "a contiguous tensor is wanted");
  return x.data_ptr<T>();
}

/// Floats that hold `bytes`.
inline int64_t floats_of(size_t bytes) { return static_cast<int64_t>((bytes + sizeof(float) - 1) / sizeof(float)); }

}  // namespace esm::ops::cuda
