// Text file of timed GEMM plans. One line a plan, fields apart by tabs:
//   cublaslt=130100  device=NVIDIA H200  sms=132  workspace=33554432  <text(GemmDesc)>  us=143.2  algo=<128 hex digits>
// Plans of other libraries and devices stay in the file and are never used here. A damaged line is dropped, so a
// damaged file costs a new search and no run.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace esm::device {

/// The 64 opaque bytes of cublasLtMatmulAlgo_t.
using GemmAlgoBytes = std::array<uint64_t, 8>;

struct GemmPlanRecord {
  GemmAlgoBytes algo{};
  double microseconds = 0;
};

/// What a plan is valid for: "cublaslt=130100\tdevice=NVIDIA H200\tsms=132\tworkspace=33554432".
struct GemmPlanScope {
  int64_t cublaslt_version = 0;
  std::string device;
  int sm_count = 0;
  int64_t workspace_bytes = 0;
  std::string text() const;
};

/// text(GemmDesc) -> plan.
using GemmPlanRecords = std::map<std::string, GemmPlanRecord>;

/// Plans of `scope` in the file; none when it does not exist. `damaged_lines`, if given, counts lines that no plan
/// could be read from. Throws DataError when the file exists and cannot be read.
GemmPlanRecords read_gemm_plans(const std::string& path, const GemmPlanScope& scope, int64_t* damaged_lines = nullptr);

/// Adds these plans of `scope` to the file, in place of equal keys; atomic, and of two processes at once none loses
/// more than what the other one found in that moment. Throws DataError.
void write_gemm_plans(const std::string& path, const GemmPlanScope& scope, const GemmPlanRecords& plans);

}  // namespace esm::device
