#include "base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <fmt/core.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

#include "base/check.h"

namespace esm {

struct Hasher::State {
  XXH3_state_t xxh;
};

Hasher::Hasher() : state_(new State) { XXH3_128bits_reset(&state_->xxh); }
Hasher::~Hasher() = default;
Hasher::Hasher(Hasher&&) noexcept = default;
Hasher& Hasher::operator=(Hasher&&) noexcept = default;

void Hasher::update(std::span<const std::byte> bytes) {
  if (!bytes.empty()) XXH3_128bits_update(&state_->xxh, bytes.data(), bytes.size());
}

void Hasher::update(std::string_view text) { update(std::as_bytes(std::span(text.data(), text.size()))); }

std::string Hasher::hex() const {
  const XXH128_hash_t digest = XXH3_128bits_digest(&state_->xxh);
  return fmt::format("{:016x}{:016x}", digest.high64, digest.low64);
}

uint64_t hash64(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

std::string hash_hex(std::span<const std::byte> bytes) {
  Hasher hasher;
  hasher.update(bytes);
  return hasher.hex();
}

std::string hash_hex(std::string_view text) { return hash_hex(std::as_bytes(std::span(text.data(), text.size()))); }

std::string hash_file(const std::string& path, const std::function<void()>& now_and_then) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file) fail<DataError>("cannot read {}: {}", path, std::strerror(errno));
  Hasher hasher;
  std::vector<std::byte> buffer(1 << 20);
  size_t n = 0;
  while ((n = std::fread(buffer.data(), 1, buffer.size(), file.get())) > 0) {
    hasher.update(std::span(buffer.data(), n));
    if (now_and_then) now_and_then();
  }
  if (std::ferror(file.get()) != 0) fail<DataError>("cannot read {}: {}", path, std::strerror(errno));
  return hasher.hex();
}

}  // namespace esm
