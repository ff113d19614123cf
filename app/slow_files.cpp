#include "app/slow_files.h"

#include <chrono>
#include <thread>
#include <utility>

namespace esm::app {
namespace {

void pause(int64_t ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

class SlowFile final : public checkpoint::OutputFile {
 public:
  SlowFile(std::unique_ptr<checkpoint::OutputFile> file, int64_t pause_ms)
      : file_(std::move(file)), pause_ms_(pause_ms) {}
  void write(std::span<const std::byte> bytes) override {
    pause(pause_ms_);
    file_->write(bytes);
  }
  void sync() override {
    pause(pause_ms_);
    file_->sync();
  }
  void close() override { file_->close(); }

 private:
  std::unique_ptr<checkpoint::OutputFile> file_;
  int64_t pause_ms_;
};

}  // namespace

std::unique_ptr<checkpoint::OutputFile> SlowFiles::create(const std::string& path) {
  pause(pause_ms_);
  return std::make_unique<SlowFile>(real().create(path), pause_ms_);
}

void SlowFiles::make_folder(const std::string& path) {
  pause(pause_ms_);
  real().make_folder(path);
}

void SlowFiles::rename(const std::string& from, const std::string& to) {
  pause(pause_ms_);
  real().rename(from, to);
}

bool SlowFiles::exchange(const std::string& a, const std::string& b) {
  pause(pause_ms_);
  return real().exchange(a, b);
}

void SlowFiles::sync_folder(const std::string& path) {
  pause(pause_ms_);
  real().sync_folder(path);
}

void SlowFiles::remove_folder(const std::string& path) {
  pause(pause_ms_);
  real().remove_folder(path);
}

}  // namespace esm::app
