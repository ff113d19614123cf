// Which build of a CPU kernel this machine runs.
#pragma once

namespace esm::ops::cpu {

/// Whether the files compiled for x86-64-v4 may be called.
inline bool use_avx512() { return __builtin_cpu_supports("avx512f") != 0; }

}  // namespace esm::ops::cpu
