// XXH3-128 content hashes (fast: many GB/s) for caches and checkpoints. They find damage, not malice.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace esm {

/// Running XXH3-128 hash.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  Hasher(Hasher&&) noexcept;
  Hasher& operator=(Hasher&&) noexcept;

  void update(std::span<const std::byte> bytes);
  void update(std::string_view text);
  /// 32 lower-case hexadecimal digits of everything seen so far.
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// XXH3-64 of `bytes`: for tables and checksums of many small pieces.
uint64_t hash64(std::span<const std::byte> bytes);

std::string hash_hex(std::string_view text);
std::string hash_hex(std::span<const std::byte> bytes);
/// Hash of a file's content; now_and_then is called while it is read, and may throw. Throws DataError when it cannot be
/// read.
std::string hash_file(const std::string& path, const std::function<void()>& now_and_then = {});

}  // namespace esm
