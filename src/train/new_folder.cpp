#include "train/new_folder.h"

#include <unistd.h>

#include <filesystem>
#include <utility>

#include "base/check.h"
#include "checkpoint/manifest.h"
#include "train/model_io.h"

namespace esm::train {
namespace fs = std::filesystem;
using checkpoint::FileSystem;
using checkpoint::OutputFile;
namespace {

using ShouldStop = std::function<bool()>;

class StoppableFile final : public OutputFile {
 public:
  StoppableFile(std::unique_ptr<OutputFile> file, const ShouldStop& should_stop)
      : file_(std::move(file)), should_stop_(should_stop) {}
  void write(std::span<const std::byte> bytes) override {
    if (should_stop_ && should_stop_()) throw ExportStopped("stopped; nothing was written");
    file_->write(bytes);
  }
  void sync() override { file_->sync(); }
  void close() override { file_->close(); }

 private:
  std::unique_ptr<OutputFile> file_;
  const ShouldStop& should_stop_;
};

// The real file system, where writing ends when it shall.
class StoppableFiles final : public FileSystem {
 public:
  explicit StoppableFiles(ShouldStop should_stop) : should_stop_(std::move(should_stop)) {}
  std::unique_ptr<OutputFile> create(const std::string& path) override {
    return std::make_unique<StoppableFile>(real().create(path), should_stop_);
  }
  void make_folder(const std::string& path) override { real().make_folder(path); }
  void rename(const std::string& from, const std::string& to) override { real().rename(from, to); }
  bool exchange(const std::string& a, const std::string& b) override { return real().exchange(a, b); }
  void sync_folder(const std::string& path) override { real().sync_folder(path); }
  void remove_folder(const std::string& path) override { real().remove_folder(path); }
  int64_t free_bytes(const std::string& path) override { return real().free_bytes(path); }

 private:
  ShouldStop should_stop_;
};

}  // namespace

NewFolder::NewFolder(const std::string& path, bool replace, ShouldStop should_stop)
    : files_(std::make_unique<StoppableFiles>(std::move(should_stop))),
      path_(fs::path(path).lexically_normal().string()),
      replace_(replace) {
  while (path_.size() > 1 && path_.back() == '/') path_.pop_back();
  refuse_existing();
  temporary_ = fmt::format("{}.tmp-{}", path_, ::getpid());
  if (fs::exists(fs::symlink_status(temporary_)))
    files_->remove_folder(temporary_);  // of a dead process with our number
  files_->make_folder(temporary_);
}

NewFolder::~NewFolder() {
  try {
    files_->remove_folder(temporary_);
  } catch (const CheckpointError&) {  // a leftover does no harm, and the error that led here is on its way
  }
}

void NewFolder::commit() {
  files_->sync_folder(temporary_);
  const bool there = fs::exists(fs::symlink_status(path_));
  if (there && !files_->exchange(temporary_, path_)) {
    files_->rename(path_, temporary_ + ".old");
    files_->rename(temporary_, path_);
    files_->remove_folder(temporary_ + ".old");
  } else if (!there) {
    files_->rename(temporary_, path_);
  }
  const std::string parent = fs::path(path_).parent_path().string();
  files_->sync_folder(parent.empty() ? "." : parent);
}

// An empty folder is as good as none. --force replaces a model, never some other folder that happens to be named.
void NewFolder::refuse_existing() const {
  if (!fs::exists(fs::symlink_status(path_))) return;
  const bool folder = fs::is_directory(path_);
  if (folder && fs::is_empty(path_)) return;
  const bool model = folder && (fs::exists(fs::path(path_) / "config.json") ||
                                fs::exists(fs::path(path_) / checkpoint::kManifestName));
  if (!model)
    fail<CheckpointError>("{} is there already and no folder of a model, so it is not replaced; choose another name",
                          path_);
  if (!replace_) fail<CheckpointError>("{} is there already; remove it or give --force", path_);
}

}  // namespace esm::train
