// Every kernel against a double-precision reference on this machine. Exit code 0: all within bounds; 1: a wrong result;
// 2: a CUDA error; 77: no CUDA device.   test_kernels [seed]
#include <chrono>

#include "tests/kernels/harness.h"

using namespace esm::kernel_tests;

namespace {

// The table itself must be able to fail.
bool planted_errors_fail() {
  const std::vector<double> want{1, 2, 3, 4};
  const Report::Bound bound = [](size_t) { return 1e-3; };
  Report planted;
  const bool good = planted.close("good", {1, 2, 3.0009f, 4}, want, bound);
  const bool off = planted.close("off", {1, 2, 3.0021f, 4}, want, bound);
  const bool nan = planted.close("nan", {1, 2, 3, std::nanf("")}, want, bound);
  const bool bits = planted.same<float>("bits", {1, 2}, {1, std::nextafter(2.0f, 3.0f)});
  return good && !off && !nan && !bits && planted.failures() == 3;
}

}  // namespace

int main(int argc, char** argv) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("skipped: no CUDA device");
    return 77;
  }
  if (!planted_errors_fail()) {
    std::puts("the comparison does not see planted errors");
    return 1;
  }
  const auto begin = std::chrono::steady_clock::now();
  const uint64_t seed = argc > 1 ? std::strtoull(argv[1], nullptr, 10)
                                 : static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  Report report;
  const struct {
    const char* name;
    void (*run)(Random&, Report&);
  } families[] = {{"layer_norm", layer_norm_tests},
                  {"gelu", gelu_tests},
                  {"rotary", rotary_tests},
                  {"embedding", embedding_tests},
                  {"head", head_tests},
                  {"reduce", reduce_tests},
                  {"adamw", adamw_tests}};
  uint64_t stream = seed;
  for (const auto& family : families) {
    Random random(++stream);
    const auto start = std::chrono::steady_clock::now();
    family.run(random, report);
    CHECK_CUDA(cudaDeviceSynchronize());
    std::fprintf(stderr, "%s: %.1f s\n", family.name,
                 std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  report.print();
  std::printf("seed %llu, %d cases, %d wrong, %.1f s\n", static_cast<unsigned long long>(seed), report.cases(),
              report.failures(), std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  return report.failures() == 0 ? 0 : 1;
}
