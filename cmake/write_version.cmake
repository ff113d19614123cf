execute_process(COMMAND git describe --always --dirty --abbrev=12 WORKING_DIRECTORY ${SOURCE}
                OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT commit)
  set(commit "unknown")
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT [[#pragma once
inline constexpr char kEsmVersion[] = "@VERSION@";
inline constexpr char kEsmCommit[] = "@commit@";
inline constexpr char kEsmPreset[] = "@PRESET@";
inline constexpr char kEsmBuildType[] = "@BUILD_TYPE@";
inline constexpr char kEsmCompiler[] = "@COMPILER@";
inline constexpr char kEsmCudaArchitectures[] = "@CUDA_ARCHITECTURES@";  // "none" without CUDA
]] @ONLY)
