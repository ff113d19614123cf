// The device of these tests.
#pragma once
#include "device/gemm.h"
#include "ops/place.h"

namespace esm::test {

/// One a program. GEMMs are not timed: tests have many shapes, and equal runs shall have equal bits.
inline const Context& gpu() {
  static const Context context =
      make_cuda_context(0, 1, device::GemmOptions{.tuning = device::GemmTuning::kFirstHeuristic});
  return context;
}

}  // namespace esm::test
