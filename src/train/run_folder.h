// The folder of a run: who may write to it, and where things are in it.
#pragma once
#include <string>

#include "base/files.h"

namespace esm::train {

class RunFolder {
 public:
  /// Makes the folder and takes its lock. Throws ConfigError when another process is running in it, DataError when it
  /// cannot be made or written to.
  explicit RunFolder(const std::string& path);

  /// False when the folder was removed or replaced since.
  bool is_in_place() const;

  const std::string& path() const { return path_; }
  std::string checkpoints() const { return path_ + "/checkpoints"; }
  std::string metrics() const { return path_ + "/metrics.jsonl"; }
  std::string csv() const { return path_ + "/metrics.csv"; }
  std::string fp8_statistics() const { return path_ + "/fp8.jsonl"; }
  std::string tensorboard() const { return path_ + "/tensorboard"; }
  std::string log() const { return path_ + "/train.log"; }
  std::string config() const { return path_ + "/config.yaml"; }

 private:
  std::string path_;
  FileDescriptor lock_;  // held for the life of the process
};

}  // namespace esm::train
