// The folder of an export: there as a whole, or not at all.
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "checkpoint/file_system.h"

namespace esm::train {

/// A folder made under a temporary name beside `path`; commit() puts it in its place, else it is removed again.
/// An empty folder that is there already gives way; with `replace` one of a model does too. Throws CheckpointError, and
/// ExportStopped from any write after should_stop (if given) has said yes.
class NewFolder {
 public:
  NewFolder(const std::string& path, bool replace, std::function<bool()> should_stop);
  ~NewFolder();
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  checkpoint::FileSystem& files() { return *files_; }
  const std::string& temporary() const { return temporary_; }
  std::string file(const std::string& name) const { return temporary_ + "/" + name; }
  void commit();

 private:
  void refuse_existing() const;

  std::unique_ptr<checkpoint::FileSystem> files_;
  std::string path_, temporary_;
  bool replace_;
};

}  // namespace esm::train
