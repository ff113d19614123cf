// Saving into a folder of checkpoints (layout: checkpoint/folder.h), crash-safe, with retention.
//
// save() writes into a temporary folder, syncs every file and the folder, and renames: the rename is the commit. Only
// then are old checkpoints removed. Whatever kills the process, every checkpoint that retention wants stays complete.
// One run at a time may write to a folder.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/folder.h"
#include "checkpoint/writer.h"

namespace esm::checkpoint {

struct SaveResult {
  std::string path;
  int64_t bytes = 0;
  bool already_there = false;        // this very content had been saved before; nothing changed
  std::vector<std::string> removed;  // by retention
};

struct StoreOptions {
  RetentionPolicy retention;
  int64_t max_file_bytes = kMaxFileBytes;
  Report report;                // empty: log::warn
  FileSystem* files = nullptr;  // null: FileSystem::real()
};

class CheckpointStore {
 public:
  /// Makes the folder, puts a step back that was being replaced when a process died, and removes what dead processes
  /// left behind: temporary folders of this host, those of other hosts once training has passed their step, and trash.
  /// Throws CheckpointError.
  explicit CheckpointStore(std::string folder, StoreOptions options = {});

  const std::string& path() const { return folder_.path(); }
  std::string step_path(int64_t step) const { return folder_.step_path(step); }

  /// Throws DiskFullError when fewer than `bytes` are free. save() calls it for itself; call it before step 1 with
  /// (keep_last + 1) * estimated_bytes(request).
  void check_free_space(int64_t bytes) const;
  /// Throws CheckpointError when no folder can be made in this one, as on a read-only file system.
  void check_writable();

  /// Saves and applies retention. Throws CheckpointError (DiskFullError), with the partial folder removed and every
  /// older checkpoint as it was; the caller decides whether to go on, and may simply save again later. A step that is
  /// there already is swapped for the new one in one step, or left alone when the content is the same. Where the file
  /// system cannot swap, the old one steps aside for a moment, and readers find it under its other name.
  SaveResult save(const SaveRequest& request);

  /// As CheckpointFolder's.
  std::vector<StepFolder> list() const { return folder_.list(); }
  std::optional<OpenCheckpoint> newest_complete();
  std::optional<StoredStep> best() { return best_of(folder_.complete_steps()); }

  /// Removes checkpoints beyond `step`, which must be there: to be called after an explicit resume from an older one,
  /// so that `--resume auto` does not return to the abandoned branch. Pinned ones stay, reported. Returns the removed
  /// paths.
  std::vector<std::string> discard_newer_than(int64_t step);

 private:
  bool commit(const std::string& temporary, const Manifest& manifest);
  void replace(const std::string& temporary, int64_t step);
  void settle_replaced(int64_t step);
  void settle_replaced();
  void set_damaged_aside(const std::string& path);
  std::vector<std::string> apply_retention(int64_t sound_step);
  void write_best_file(const std::vector<StoredStep>& complete);
  void remove_leftovers();
  bool trash(const std::string& path);
  void remove_quietly(const std::string& path);
  std::string unique_suffix();

  CheckpointFolder folder_;
  StoreOptions options_;
  FileSystem& files_;
  std::string host_;
  std::string nonce_;  // tells this store's folders from those of a dead process with the same number
  int64_t counter_ = 0;
  std::optional<int64_t> sound_step_;  // saved or fully verified by this store
};

}  // namespace esm::checkpoint
