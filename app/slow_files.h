// A slow disk, for drills that kill a run while it saves (scripts/drills/kill.sh).
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "checkpoint/file_system.h"

namespace esm::app {

/// The real file system, with a pause before every operation that changes something.
class SlowFiles : public checkpoint::FileSystem {
 public:
  explicit SlowFiles(int64_t pause_ms) : pause_ms_(pause_ms) {}

  std::unique_ptr<checkpoint::OutputFile> create(const std::string& path) override;
  void make_folder(const std::string& path) override;
  void rename(const std::string& from, const std::string& to) override;
  bool exchange(const std::string& a, const std::string& b) override;
  void sync_folder(const std::string& path) override;
  void remove_folder(const std::string& path) override;
  int64_t free_bytes(const std::string& path) override { return real().free_bytes(path); }

 private:
  int64_t pause_ms_;
};

}  // namespace esm::app
