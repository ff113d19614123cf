// Which kernels serve a run where several can: settled before the model is built, kept on this machine between runs and
// in every checkpoint. Deterministic runs choose by rule alone, so that nothing on disk or on the clock changes a bit.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "device/context.h"
#include "device/gemm.h"
#include "ops/attention_cuda.h"
#include "train/run_config.h"

namespace esm::train {

/// What the last bits of a run depend on beside program, config and data: "device", "attention" (on a CUDA device), and
/// the versions of "cuBLASLt", "cuDNN" and "LibTorch".
using KernelRecord = std::map<std::string, std::string>;

struct KernelChoice {
  std::optional<ops::AttentionKind> attention;  // none on the CPU
  KernelRecord record;                          // for the checkpoint's manifest
};

/// Says in the log what was chosen. `cache`: folder where choices found by timing are kept, "" for none. `recorded`:
/// that of the checkpoint which is resumed, empty for a new run. On a CUDA device, without a choice to go by, times the
/// candidates: some tenths of a second and memory for one layer's attention, all of it given back. Throws ConfigError,
/// DeviceError.
KernelChoice choose_kernels(const Context& context, const RunConfig& config, const std::string& cache,
                            const KernelRecord& recorded);

/// Of the CUDA device's context: enough for the largest weight.
int64_t gemm_workspace_bytes(const RunConfig& config);
/// How the GEMMs of this run are planned.
device::GemmOptions gemm_options(const RunConfig& config, const std::string& cache);

/// A line for people on every entry that both have and that differs.
std::vector<std::string> differences(const KernelRecord& of_checkpoint, const KernelRecord& now);

/// The part of the choice that needs no device.
struct AttentionQuestion {
  AttentionChoice configured = AttentionChoice::kAuto;
  bool deterministic = false;
  ops::AttentionTarget target;
  std::string recorded;  // the backend before the checkpoint; "": none known
};
struct AttentionAnswer {
  std::optional<ops::AttentionKind> kind;  // none: the fastest
  std::string reason;                      // "as configured"
};
/// Throws ConfigError when a deterministic run would have to go on with another backend than before, DeviceError when
/// what is asked for cannot do the sizes.
AttentionAnswer settle_attention(const AttentionQuestion& question);

}  // namespace esm::train
