// Every kernel against a double-precision reference on this machine. Exit code 0: all within bounds; 1: a wrong result;
// 2: a CUDA error; 77: no CUDA device.   test_kernels [seed]
#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "checks/kernels.h"

using namespace esm::checks;

int main(int argc, char** argv) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("skipped: no CUDA device");
    return 77;
  }
  const auto begin = std::chrono::steady_clock::now();
  const uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10)
                                 : static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  std::printf("%-78s %11s %11s %10s  %s\n", "case", "max error", "bound", "rel. L2", "verdict");
  uint64_t stream = seed;
  int64_t cases = 0, wrong = 0;
  for (const std::string& family : kernel_families()) {
    const CheckGroup group = check_kernels(family, ++stream);
    for (const Case& c : group.cases)
      std::printf("%-78s %11.3e %11.3e %10.2e  %s\n", c.name.c_str(), c.error, c.bound, c.relative_l2,
                  c.ok ? "ok" : "WRONG");
    std::fflush(stdout);
    std::fprintf(stderr, "%s: %.1f s\n", family.c_str(), group.seconds);
    if (!group.failure.empty()) {
      std::printf("%s: %s\n", family.c_str(), group.failure.c_str());
      return 2;
    }
    if (group.cases.empty()) {
      std::printf("%s: no cases\n", family.c_str());
      return 1;
    }
    cases += static_cast<int64_t>(group.cases.size());
    wrong += group.wrong();
  }
  std::printf("seed %llu, %lld cases, %lld wrong, %.1f s\n", static_cast<unsigned long long>(seed),
              static_cast<long long>(cases), static_cast<long long>(wrong),
              std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  return wrong == 0 && cases > 0 ? 0 : 1;
}
