// Collectives over raw spans. One interface for NCCL, Gloo and a single process; callers know no library.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>

#include "base/dtype.h"

namespace esm::dist {

enum class ReduceOp { kSum, kMax };

/// Each call is collective: all ranks make the same calls with equal sizes in the same order. Results are bit-equal on
/// all ranks. Errors: DistError naming the collective.
class Comm {
 public:
  virtual ~Comm() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// In place over `data` of `dtype` elements.
  virtual void all_reduce(std::span<std::byte> data, DType dtype, ReduceOp op) = 0;
  /// `all` = the ranks' `mine` one after the other; all.size() = size() * mine.size().
  virtual void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) = 0;
  /// `mine` = this rank's slice of the sum of everyone's `all`; all.size() = size() * mine.size().
  virtual void reduce_scatter(std::span<const std::byte> all, std::span<std::byte> mine, DType dtype) = 0;
  virtual void broadcast(std::span<std::byte> data, int root) = 0;
  virtual void barrier() = 0;
};

/// A world of one: the collectives are copies.
std::unique_ptr<Comm> make_single_comm();

/// all_reduce of a few host numbers, in place.
template <class T>
void all_reduce_values(Comm& comm, std::span<T> values, ReduceOp op) {
  static_assert(std::is_same_v<T, double> || std::is_same_v<T, int64_t>);
  comm.all_reduce(std::as_writable_bytes(values), std::is_same_v<T, double> ? DType::kF64 : DType::kI64, op);
}

}  // namespace esm::dist
