// The memory plan as people read it, and the error when memory runs out.
#pragma once
#include <exception>
#include <string>

#include "train/memory_plan.h"

namespace esm::train {

/// A line a part with its share of the sum; parts of no bytes are left out.
std::string memory_table(const MemoryPlan& plan);
/// One line for the log: "66.4 GiB predicted: ...".
std::string memory_line(const MemoryPlan& plan);

/// What ran out, the memory table of `user` in `place`, what would fit.
struct MemoryUser {
  const RunConfig& config;
  Use use = Use::kTraining;
};
std::string out_of_memory_text(const std::string& reason, const MemoryUser& user, const PlanPlace& place);

/// What was asked for, if `error` says that memory has run out (device::OutOfMemory, LibTorch's allocators,
/// std::bad_alloc, an error that tells of one of them); else "".
std::string out_of_memory_reason(const std::exception& error);

/// Throws DeviceError with out_of_memory_text() if `error` says that memory has run out, else returns.
void rethrow_out_of_memory(const std::exception& error, const MemoryUser& user);

/// The one place where out-of-memory errors of a run get their table: result of body(), which builds and uses a model
/// of user.config (and may change it before it fails).
template <class Body>
auto with_memory_report(const MemoryUser& user, const Body& body) {
  try {
    return body();
  } catch (const std::exception& error) {
    rethrow_out_of_memory(error, user);
    throw;
  }
}

}  // namespace esm::train
