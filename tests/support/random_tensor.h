// Random tensors of tests.
#pragma once
#include "base/philox.h"
#include "ops/aten.h"

namespace esm::test {

/// Normal values; equal for equal seeds.
inline at::Tensor random_tensor(uint64_t seed, at::IntArrayRef shape, at::ScalarType type = at::kFloat) {
  at::Tensor result = at::empty(shape, at::kFloat);
  float* values = result.mutable_data_ptr<float>();
  for (int64_t i = 0; i < result.numel(); ++i) {
    const PhiloxResult words = philox(seed, RandomStream::kSynthetic, static_cast<uint64_t>(i), 2);
    values[i] = static_cast<float>(normal_pair(words.v[0], words.v[1])[0]);
  }
  return result.to(type);
}

}  // namespace esm::test
