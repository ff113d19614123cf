// Numbers as people read them.
#pragma once
#include <cstdint>
#include <string>

namespace esm {

/// "640 B", "1.5 KiB", "12.3 GiB".
std::string human_bytes(int64_t bytes);
/// "950", "12.3k", "4.56M": three significant digits.
std::string human_count(double count);
/// "45 s", "3 min 20 s", "2 h 5 min", "3 d 4 h".
std::string human_duration(double seconds);
/// 1234567 -> "1,234,567".
std::string with_thousands(int64_t value);

}  // namespace esm
