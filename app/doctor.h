// The parts of `esmtrain doctor`; each adds its findings.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "app/verdicts.h"
#include "ops/attention_agreement.h"

namespace esm::app {

struct DoctorOptions {
  int64_t device = 0;    // the CUDA device whose kernels are checked
  uint64_t seed = 0;     // of the inputs of all checks
  bool verbose = false;  // a note for every case, not only for the wrong ones
};

/// Program, libraries, CPU, memory, disk, and the CPU's attention.
void inspect_machine(Verdicts& verdicts, const DoctorOptions& options);

/// One finding for all of `results`.
void add_attention(Verdicts& verdicts, const std::string& name, const std::vector<ops::AttentionAgreement>& results,
                   const DoctorOptions& options);

/// Every CUDA device; then on one of them all kernels, products and attention backends, and its ceilings. One skipped
/// line where there is no device. Throws ConfigError for a device that is not there.
void inspect_devices(Verdicts& verdicts, const DoctorOptions& options);

}  // namespace esm::app
