#include "base/crc32c.h"

#include <string>

#include "support/catch.h"

TEST_CASE("CRC-32C gives the values of RFC 3720, appendix B.4") {
  std::string rising(32, '\0'), falling(32, '\0');
  for (size_t i = 0; i < 32; ++i) {
    rising[i] = static_cast<char>(i);
    falling[i] = static_cast<char>(31 - i);
  }
  CHECK(esm::crc32c(std::string(32, '\0')) == 0x8A9136AA);
  CHECK(esm::crc32c(std::string(32, '\xFF')) == 0x62A8AB43);
  CHECK(esm::crc32c(rising) == 0x46DD794E);
  CHECK(esm::crc32c(falling) == 0x113FDB5C);
  CHECK(esm::crc32c("123456789") == 0xE3069283);
  CHECK(esm::crc32c("") == 0);
}
