// Zip files of stored entries without checksums, for tests that need odd ones.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace esm::test {

inline std::string stored_zip(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string file, directory;
  const auto put = [](std::string& out, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
  };
  for (const auto& entry : entries) {
    const std::string &name = entry.first, &content = entry.second;
    const auto common = [&](std::string& out) {
      put(out, 20, 2);  // version
      put(out, 0, 2);   // flags
      put(out, 0, 2);   // stored
      put(out, 0, 4);   // time
      put(out, 0, 4);   // no checksum
      put(out, content.size(), 4);
      put(out, content.size(), 4);
      put(out, name.size(), 2);
      put(out, 0, 2);  // no extra field
    };
    put(directory, 0x02014b50, 4);
    put(directory, 20, 2);
    common(directory);
    directory.append(10, '\0');  // comment, disk, attributes
    put(directory, file.size(), 4);
    directory += name;
    put(file, 0x04034b50, 4);
    common(file);
    file += name + content;
  }
  const size_t begin = file.size();
  file += directory;
  put(file, 0x06054b50, 4);
  put(file, 0, 4);
  put(file, entries.size(), 2);
  put(file, entries.size(), 2);
  put(file, directory.size(), 4);
  put(file, begin, 4);
  put(file, 0, 2);
  return file;
}

}  // namespace esm::test
