// Exit code 77 (CTest: skipped) without a CUDA device.
#define CATCH_CONFIG_RUNNER
#include "support/catch.h"

#include "device/versions.h"

int main(int argc, char** argv) {
  if (esm::device::cuda_device_count() == 0) {
    std::fputs("no CUDA device: skipped\n", stderr);
    return 77;
  }
  return Catch::Session().run(argc, argv);
}
