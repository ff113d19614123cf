#include <functional>

#include "app/doctor.h"
#include "app/version.h"
#include "base/check.h"
#include "base/units.h"
#include "bench/ceilings.h"
#include "checks/gemm.h"
#include "checks/kernels.h"
#include "device/architectures.h"
#include "device/gemm_fp8.h"
#include "device/memory.h"
#include "device/properties.h"
#include "device/versions.h"
#include "ops/attention_agreement.h"

namespace esm::app {
namespace {

/// Why no CUDA device can be used; "" when there is one.
std::string no_device_reason() {
  if (device::cuda_device_count() > 0) return "";
  if (built_architectures() == "none")
    return "this program was built without CUDA; on a machine with a GPU use a build of the preset cuda";
  const device::DriverVersion driver = device::driver_version();
  if (driver.text.empty()) return "no CUDA driver on this machine; training runs on the CPU";
  return fmt::format(
      "no CUDA device that this process may use (driver for CUDA {}, CUDA_VISIBLE_DEVICES?); training "
      "runs on the CPU",
      driver.text);
}

void driver(Verdicts& verdicts) {
  const device::DriverVersion found = device::driver_version();
  verdicts.add(found.too_old ? Verdict::kWarning : Verdict::kOk, "CUDA driver",
               found.too_old
                   ? fmt::format("for CUDA {}, older than the CUDA runtime: install a newer driver", found.text)
                   : fmt::format("for CUDA {}", found.text));
}

/// False when the program cannot work on it.
bool describe(Verdicts& verdicts, int index) {
  device::use_device(index);
  const device::Properties p = device::properties(index);
  const device::MemoryInfo memory = device::device_memory();
  const bool covered = device::has_code_for(built_architectures(), p.compute_capability);
  std::string detail = fmt::format("{}, compute capability {}.{}, {} multiprocessors, {}, {} free", p.name,
                                   p.compute_capability / 10, p.compute_capability % 10, p.sm_count,
                                   human_bytes(memory.total_bytes), human_bytes(memory.free_bytes));
  if (!covered)
    detail += fmt::format("; the program has kernels for {} only, configure with -DCMAKE_CUDA_ARCHITECTURES={}",
                          built_architectures(), p.compute_capability);
  verdicts.add({.verdict = covered ? Verdict::kOk : Verdict::kFailed,
                .name = fmt::format("cuda:{}", index),
                .detail = std::move(detail),
                .numbers = {{"memory_bytes", static_cast<double>(memory.total_bytes)},
                            {"free_bytes", static_cast<double>(memory.free_bytes)}}});
  return covered;
}

void add_group(Verdicts& verdicts, const checks::CheckGroup& group, const DoctorOptions& options) {
  Finding finding{.verdict = group.ok() ? Verdict::kOk : Verdict::kFailed, .name = group.name};
  const checks::Case* worst = group.worst();
  const double share = worst != nullptr ? worst->share_of_bound() : 0;
  finding.detail =
      fmt::format("{} cases against FP64, {} wrong; at most {:.0f} % of a bound{}; {:.1f} s", group.cases.size(),
                  group.wrong(), 100 * share, worst != nullptr ? fmt::format(" ({})", worst->name) : "", group.seconds);
  if (!group.failure.empty()) finding.detail += "; ended early: " + group.failure;
  finding.numbers = {{"cases", static_cast<double>(group.cases.size())},
                     {"wrong", static_cast<double>(group.wrong())},
                     {"worst_share_of_bound", share},
                     {"seconds", group.seconds}};
  for (const checks::Case& c : group.cases)
    if (!c.ok || options.verbose)
      finding.notes.push_back(fmt::format("{:<6} {}: {:.3g} (<= {:.3g}), rel. L2 {:.1e}", c.ok ? "ok" : "WRONG", c.name,
                                          c.error, c.bound, c.relative_l2));
  verdicts.add(std::move(finding));
}

/// Exceptions of libraries carry a stack trace behind it.
std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

/// Checks of one device. After an error that leaves it unusable the rest is skipped.
class DeviceChecks {
 public:
  DeviceChecks(Verdicts& verdicts, const DoctorOptions& options) : verdicts_(verdicts), options_(options) {}

  void run_group(const std::string& name, const std::function<checks::CheckGroup()>& check) {
    run(name, [&] {
      const checks::CheckGroup group = check();
      add_group(verdicts_, group, options_);
      if (group.device_lost) lost_after_ = name;
    });
  }
  void run(const std::string& name, const std::function<void()>& check) {
    if (!lost_after_.empty()) {
      verdicts_.add(Verdict::kSkipped, name, fmt::format("the device does not answer any more after {}", lost_after_));
      return;
    }
    try {
      check();
    } catch (const device::OutOfMemory& error) {
      verdicts_.add(Verdict::kSkipped, name, error.what());
    } catch (const std::exception& error) {
      verdicts_.add(Verdict::kFailed, name, first_line(error.what()));
    }
  }

 private:
  Verdicts& verdicts_;
  const DoctorOptions& options_;
  std::string lost_after_;
};

void copy_ceiling(Verdicts& verdicts) {
  const bench::CopyRates rates = bench::measure_copy();
  const auto gb = [](double rate) { return with_thousands(static_cast<int64_t>(rate)); };
  verdicts.add({.verdict = Verdict::kOk,
                .name = "device copy",
                .detail = fmt::format("{} GB/s read + written (cudaMemcpyAsync {}, in a CUDA graph {}, our kernel {}; "
                                      "{} a buffer)",
                                      gb(rates.best()), gb(rates.library), gb(rates.library_in_graph), gb(rates.kernel),
                                      human_bytes(rates.bytes)),
                .numbers = {{"gb_per_s", rates.best()},
                            {"library_gb_per_s", rates.library},
                            {"library_in_graph_gb_per_s", rates.library_in_graph},
                            {"kernel_gb_per_s", rates.kernel}}});
}

void gemm_ceiling(Verdicts& verdicts) {
  const bench::GemmCeiling ceiling = bench::measure_gemm();
  verdicts.add({.verdict = Verdict::kOk,
                .name = "BF16 product",
                .detail = fmt::format("{:.0f} TFLOP/s at {}^3", ceiling.tflops, bench::GemmCeiling::kSize),
                .numbers = {{"tflops", ceiling.tflops}}});
}

void fp8_gemm_ceiling(Verdicts& verdicts) {
  const bench::Fp8GemmCeiling ceiling = bench::measure_fp8_gemm();
  verdicts.add({.verdict = Verdict::kOk,
                .name = "FP8 product",
                .detail = fmt::format("{:.0f} TFLOP/s at {}^3 with fast accumulation, {:.0f} with split",
                                      ceiling.fast_tflops, bench::GemmCeiling::kSize, ceiling.split_tflops),
                .numbers = {{"fast_tflops", ceiling.fast_tflops}, {"split_tflops", ceiling.split_tflops}}});
}

}  // namespace

void inspect_devices(Verdicts& verdicts, const DoctorOptions& options) {
  const std::string reason = no_device_reason();
  if (!reason.empty()) {
    verdicts.add(Verdict::kSkipped, "GPU", reason);
    return;
  }
  driver(verdicts);
  const int devices = device::cuda_device_count();
  if (options.device < 0 || options.device >= devices)
    fail<ConfigError>("--device {}: there are {} CUDA devices, from 0", options.device, devices);
  std::vector<bool> covered;
  for (int i = 0; i < devices; ++i) {
    try {
      covered.push_back(describe(verdicts, i));
    } catch (const DeviceError& error) {
      verdicts.add(Verdict::kFailed, fmt::format("cuda:{}", i), error.what());
      covered.push_back(false);
    }
  }
  const int index = static_cast<int>(options.device);
  if (!covered[static_cast<size_t>(index)]) {
    verdicts.add(Verdict::kSkipped, "GPU checks", fmt::format("cuda:{} cannot be used, see above", index));
    return;
  }
  device::use_device(index);
  DeviceChecks checks(verdicts, options);
  uint64_t seed = options.seed;
  for (const std::string& family : checks::kernel_families())
    checks.run_group(family, [&] { return checks::check_kernels(family, ++seed); });
  checks.run_group("gemm", [&] { return checks::check_gemms(++seed); });
  const bool fp8 = device::properties(index).compute_capability >= device::kLeastFp8Capability;
  if (fp8)
    checks.run_group("gemm fp8", [&] { return checks::check_fp8_gemms(++seed); });
  else
    verdicts.add(Verdict::kSkipped, "gemm fp8", fmt::format("cuda:{} has no FP8 tensor cores", index));
  checks.run("GPU attention",
             [&] { add_attention(verdicts, "GPU attention", ops::check_cuda_attention(index, ++seed), options); });
  checks.run("device copy", [&] { copy_ceiling(verdicts); });
  checks.run("BF16 product", [&] { gemm_ceiling(verdicts); });
  if (fp8) checks.run("FP8 product", [&] { fp8_gemm_ceiling(verdicts); });
}

}  // namespace esm::app
