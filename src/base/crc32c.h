// CRC-32C (Castagnoli), the checksum of TFRecord files.
#pragma once
#include <cstdint>
#include <string_view>

namespace esm {

/// CRC-32C of `bytes` (RFC 3720, appendix B.4 has test vectors). A byte a step: for small records.
uint32_t crc32c(std::string_view bytes);

}  // namespace esm
