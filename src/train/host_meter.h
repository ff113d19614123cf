// What a measurement on CPU cores is compared with.
#pragma once
#include <cstdint>

#include "device/context.h"

namespace esm::train {

/// Processor time of this process so far, all threads, user and system.
double processor_ms();

/// Most memory that this process has held (resident set), as the kernel counts it.
int64_t peak_resident_bytes();

/// FP32 product of 2048 x 2048 matrices by LibTorch into memory that is there, on the context's CPU threads: the
/// fastest of twelve, in GFLOP/s. Takes 50 MB and some tenths of a second.
double measure_product_gflops(const Context& context);

}  // namespace esm::train
