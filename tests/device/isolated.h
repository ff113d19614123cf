// Runs the parts of a program in a child process: a part that leaves the device unusable (an illegal access stays with
// a process for good), crashes or hangs fails alone, and the parts behind it go on in a new child.
#pragma once
#include <cuda_runtime_api.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/device/report.h"

namespace esm::test {

struct Part {
  std::string name;
  std::function<void(Report&, cudaStream_t)> run;  // an exception is a failure of this part
};

/// True in the child: headings are for the parent to print.
bool in_child();

/// Runs all parts in their order; returns the exit code. `argv` is main's: the child gets the same arguments, and makes
/// the same parts of them. The random seed is the parent's, through ESM_TEST_SEED.
int run_isolated(const char* program, char** argv, const std::vector<Part>& parts, uint64_t seed);

}  // namespace esm::test
