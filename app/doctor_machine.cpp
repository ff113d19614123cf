#include <filesystem>
#include <fstream>

#include "app/doctor.h"
#include "app/environment.h"
#include "app/version.h"
#include "base/units.h"
#include "device/versions.h"
#include "ops/attention_agreement.h"
#include "ops/version.h"
#include "train/setup.h"

namespace esm::app {
namespace {

void libraries(Verdicts& verdicts) {
  std::vector<device::LibraryVersion> all = ops::compared_versions();
  for (device::LibraryVersion& version : device::compared_versions()) all.push_back(std::move(version));
  for (const device::LibraryVersion& v : all) {
    if (v.built == v.found)
      verdicts.add(Verdict::kOk, v.name, v.found);
    else
      verdicts.add(Verdict::kWarning, v.name,
                   fmt::format("found {}, but the program was built against {}; see which file is loaded with "
                               "`ldd` on the program, and LD_LIBRARY_PATH",
                               v.found, v.built));
  }
}

/// "MemTotal" or "MemAvailable" of /proc/meminfo, in bytes; -1 when it cannot be read.
int64_t memory_bytes(const std::string& which) {
  std::ifstream file("/proc/meminfo");
  std::string name;
  int64_t kib = 0;
  for (std::string unit; file >> name >> kib && std::getline(file, unit);)
    if (name == which + ":") return kib * 1024;
  return -1;
}

void memory(Verdicts& verdicts) {
  const int64_t total = memory_bytes("MemTotal"), available = memory_bytes("MemAvailable");
  if (total < 0)
    verdicts.add(Verdict::kSkipped, "memory", "/proc/meminfo cannot be read");
  else
    verdicts.add({.verdict = Verdict::kOk,
                  .name = "memory",
                  .detail = fmt::format("{}, {} available", human_bytes(total), human_bytes(available)),
                  .numbers = {{"total_bytes", static_cast<double>(total)},
                              {"available_bytes", static_cast<double>(available)}}});
}

/// Of the folder where FASTA is kept as shards, or the nearest one above it that exists.
void disk(Verdicts& verdicts) {
  constexpr int64_t kLittle = int64_t{1} << 30;
  const std::string folder = data_cache_folder();
  if (folder.empty()) {
    verdicts.add(Verdict::kWarning, "disk", "no cache folder: neither XDG_CACHE_HOME nor HOME is set");
    return;
  }
  std::filesystem::path there = folder;
  std::error_code error;
  while (!std::filesystem::exists(there, error) && there.has_relative_path()) there = there.parent_path();
  const std::filesystem::space_info space = std::filesystem::space(there, error);
  if (error) {
    verdicts.add(Verdict::kWarning, "disk", fmt::format("cache folder {}: {}", folder, error.message()));
    return;
  }
  const auto available = static_cast<int64_t>(space.available);
  verdicts.add({.verdict = available < kLittle ? Verdict::kWarning : Verdict::kOk,
                .name = "disk",
                .detail = fmt::format("cache folder {}: {} free of {}", folder, human_bytes(available),
                                      human_bytes(static_cast<int64_t>(space.capacity))),
                .numbers = {{"free_bytes", static_cast<double>(available)}}});
}

void cpu(Verdicts& verdicts, const DoctorOptions& options) {
  const ops::CpuFeatures features = ops::cpu_features();
  const int64_t threads = train::effective_threads(0);
  if (!features.avx2 || !features.fma) {
    verdicts.add(Verdict::kFailed, "CPU", "has no AVX2 and FMA, which the CPU kernels need; use another machine");
    verdicts.add(Verdict::kSkipped, "CPU attention", "the CPU cannot run it");
    return;
  }
  verdicts.add({.verdict = Verdict::kOk,
                .name = "CPU",
                .detail = fmt::format("{} threads; AVX2, FMA{}", threads,
                                      features.avx512 ? ", AVX-512 (attention uses it)" : "; attention uses AVX2"),
                .numbers = {{"threads", static_cast<double>(threads)}}});
  add_attention(verdicts, "CPU attention", ops::check_cpu_attention(options.seed), options);
}

}  // namespace

void add_attention(Verdicts& verdicts, const std::string& name, const std::vector<ops::AttentionAgreement>& results,
                   const DoctorOptions& options) {
  Finding finding{.name = name};
  int64_t ran = 0, wrong = 0;
  double worst = 0;
  std::string worst_name;
  for (const ops::AttentionAgreement& r : results) {
    const bool compared = r.refusal.empty() && r.failure.empty();
    const double share = compared ? std::max(r.out / r.out_bound, r.gradient / r.gradient_bound) : 0;
    if (share > worst) {
      worst = share;
      worst_name = r.name;
    }
    ran += r.refusal.empty() ? 1 : 0;
    wrong += r.ok() ? 0 : 1;
    const std::string text = !r.failure.empty() ? r.failure
                             : !r.refusal.empty()
                                 ? "left out: " + r.refusal
                                 : fmt::format("output {:.1e} (<= {:.0e}), gradient {:.1e} (<= {:.0e})", r.out,
                                               r.out_bound, r.gradient, r.gradient_bound);
    if (!r.ok() || options.verbose)
      finding.notes.push_back(fmt::format("{:<6} {}: {}", r.ok() ? "ok" : "WRONG", r.name, text));
  }
  finding.verdict = wrong > 0 || ran == 0 ? Verdict::kFailed : Verdict::kOk;
  finding.detail = fmt::format("{} cases against FP64, {} wrong; at most {:.0f} % of a bound ({})", ran, wrong,
                               100 * worst, worst_name);
  finding.numbers = {
      {"cases", static_cast<double>(ran)}, {"wrong", static_cast<double>(wrong)}, {"worst_share_of_bound", worst}};
  verdicts.add(std::move(finding));
}

void inspect_machine(Verdicts& verdicts, const DoctorOptions& options) {
  verdicts.add(Verdict::kOk, "esmtrain", build_text());
  libraries(verdicts);
  memory(verdicts);
  disk(verdicts);
  cpu(verdicts, options);
}

}  // namespace esm::app
