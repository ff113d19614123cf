// esmtrain doctor [--verbose] [--json] [--device N] [--seed N]
#include <chrono>

#include "app/args.h"
#include "app/commands.h"
#include "app/doctor.h"
#include "base/check.h"

namespace esm::app {

int cmd_doctor(int argc, char** argv) {
  bool json = false;
  DoctorOptions options;
  int64_t seed = 0;
  Args args(
      "doctor",
      "Looks at this machine and checks that the program computes right on it: libraries, CPU, memory, disk; on a "
      "GPU every kernel, matrix products and attention against FP64, and how fast the GPU can copy and multiply. "
      "One verdict a line: ok, warning, FAILED, or skipped with the reason. Exit code 4 when something failed.");
  args.flag(options.verbose, "--verbose", "A line for every case, not only for the wrong ones.")
      .flag(json, "--json", "Print one JSON object on standard output.")
      .option(options.device, "--device", "N", "CUDA device whose kernels are checked.")
      .option(seed, "--seed", "N", "Seed of the random inputs, to repeat a run; 0: a new one each time.")
      .example("esmtrain doctor", "before the first training on a new machine");
  if (!args.parse(argc, argv)) return 0;
  const auto start = std::chrono::steady_clock::now();
  options.seed = seed != 0
                     ? static_cast<uint64_t>(seed)
                     : static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count() % 1000000007);

  Verdicts verdicts(json ? Verdicts::Output::kJson : Verdicts::Output::kLines);
  inspect_machine(verdicts, options);
  inspect_devices(verdicts, options);
  verdicts.finish(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), options.seed);
  return verdicts.count(Verdict::kFailed) == 0 ? 0 : DeviceError("").exit_code();
}

}  // namespace esm::app
