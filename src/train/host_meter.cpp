#include "train/host_meter.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>

#include "base/check.h"
#include "ops/aten.h"

namespace esm::train {
namespace {

rusage usage() {
  rusage u{};
  ESM_CHECK(::getrusage(RUSAGE_SELF, &u) == 0, "getrusage failed");
  return u;
}

double ms(const timeval& t) { return 1e3 * static_cast<double>(t.tv_sec) + 1e-3 * static_cast<double>(t.tv_usec); }

}  // namespace

double processor_ms() {
  const rusage u = usage();
  return ms(u.ru_utime) + ms(u.ru_stime);
}

int64_t peak_resident_bytes() { return int64_t{1024} * usage().ru_maxrss; }

double measure_product_gflops(const Context& context) {
  constexpr int64_t kSize = 2048;
  constexpr int kRuns = 12;
  ESM_CHECK(!context.on_cuda(), "a product on the CPU is wanted");
  at::set_num_threads(context.threads);
  const auto random = [] { return at::empty({kSize, kSize}, at::kFloat).uniform_(-1, 1); };
  const at::Tensor a = random(), b = random();
  at::Tensor c = at::zeros({kSize, kSize});
  double best = 0;
  for (int run = 0; run < kRuns; ++run) {
    const auto start = std::chrono::steady_clock::now();
    at::mm_out(c, a, b);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    best = std::max(best, 2e-9 * static_cast<double>(kSize * kSize * kSize) / seconds.count());
  }
  return best;
}

}  // namespace esm::train
