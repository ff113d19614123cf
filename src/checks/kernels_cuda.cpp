#include "checks/kernels.h"

#include <array>
#include <chrono>

#include "checks/harness.h"

namespace esm::checks {
namespace {

struct Family {
  const char* name;
  void (*run)(Random&, Report&);
};

constexpr std::array kFamilies{Family{"layer_norm", layer_norm_checks},
                               Family{"gelu", gelu_checks},
                               Family{"rotary", rotary_checks},
                               Family{"embedding", embedding_checks},
                               Family{"head", head_checks},
                               Family{"reduce", reduce_checks},
                               Family{"adamw", adamw_checks},
                               Family{"quantize", quantize_checks},
                               Family{"gelu_fp8", gelu_fp8_checks},
                               Family{"layer_norm_fp8", layer_norm_fp8_checks},
                               Family{"rotary_fp8", rotary_fp8_checks},
                               Family{"fp8_scales", fp8_scales_checks},
                               Family{"fp8_counts", fp8_counts_checks},
                               Family{"fake_quantize", fake_quantize_checks},
                               Family{"quantize_groups", quantize_groups_checks}};

}  // namespace

std::vector<std::string> kernel_families() {
  std::vector<std::string> names;
  for (const Family& family : kFamilies) names.emplace_back(family.name);
  return names;
}

CheckGroup check_kernels(const std::string& family, uint64_t seed) {
  CheckGroup group{.name = family};
  const auto start = std::chrono::steady_clock::now();
  Report report;
  try {
    for (const Family& known : kFamilies) {
      if (known.name != family) continue;
      Random random(seed);
      known.run(random, report);
      CHECK_CUDA(cudaDeviceSynchronize());
    }
  } catch (const DeviceError& error) {
    group.failure = error.what();
    group.device_lost = cudaDeviceSynchronize() != cudaSuccess;
    cudaGetLastError();
  }
  group.cases = report.take();
  group.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return group;
}

}  // namespace esm::checks
