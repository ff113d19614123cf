// The clock that the multiprocessors run at right now.
#pragma once
#include <cuda_runtime_api.h>

#include "device/memory.h"

namespace esm::test {

/// Reads the clock with a kernel of one thread for 100 us, behind the work queued before: the clock of that work, since
/// it falls over milliseconds only. `scratch` holds at least 16 bytes.
void queue_sm_clock(const device::DeviceBuffer& scratch, cudaStream_t stream);
/// MHz of the last one queued; waits for it.
double sm_clock_mhz(const device::DeviceBuffer& scratch, cudaStream_t stream);

}  // namespace esm::test
