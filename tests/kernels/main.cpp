// Kernel tests need a GPU; without one they are skipped (exit code 77), which scripts/check.sh gpu turns into a
// failure.
#include <cstdio>

#include "device/versions.h"
#if ESM_CATCH2_MAJOR >= 3
#include <catch2/catch_session.hpp>
#else
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#endif

int main(int argc, char** argv) {
  if (esm::device::cuda_device_count() == 0) {
    std::puts("skipped: no CUDA device");
    return 77;
  }
  return Catch::Session().run(argc, argv);
}
