// The entry of libFuzzer; ESM_FUZZ_TARGET is one function of targets.h.
#include <cstdint>

#include "fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  esm::fuzz::ESM_FUZZ_TARGET({reinterpret_cast<const char*>(data), size});
  return 0;
}
