// A folder of checkpoints, read only: what is in it, which is the newest sound one, which the best.
//
//   RUN/checkpoints/step-000000100/manifest.json                          written last
//                                  model-00001-of-00002.safetensors       parameters, FP32 master
//                                  optimizer-00001-of-00004.safetensors   exp_avg/NAME, exp_avg_sq/NAME
//                                  passthrough-00001-of-00001.safetensors tensors of an import that we do not use
//                                  pinned                                 made by hand: never remove this checkpoint
//                   step-000000200.tmp-HOST-PID-NONCE/   being written
//                   .replaced-step-000000100/            the old one while a new one takes its place, on file systems
//                                                        that cannot swap; counts as that step where there is none
//                   .trash-...                           being removed
//                   damaged-step-...                     found damaged when its step was saved again; kept
//                   best.json                            step and metric of the best one, for people
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/open_checkpoint.h"
#include "checkpoint/retention.h"

namespace esm::checkpoint {

/// Receives what a person should know: alien folders, fallbacks, folders that could not be removed.
using Report = std::function<void(const std::string& line)>;

inline constexpr std::string_view kTemporaryMark = ".tmp-";
inline constexpr std::string_view kReplacedPrefix = ".replaced-";
inline constexpr std::string_view kTrashPrefix = ".trash-";
inline constexpr std::string_view kDamagedPrefix = "damaged-";
inline constexpr char kBestName[] = "best.json";
inline constexpr char kPinnedName[] = "pinned";

struct StepFolder {
  int64_t step = 0;
  std::string path;
};

/// Parts of "step-000000200.tmp-HOST-PID-NONCE".
struct TemporaryName {
  int64_t step = 0;
  std::string host;
  int pid = 0;
  std::string nonce;
};
std::optional<TemporaryName> parse_temporary_name(std::string_view name);
/// The step of ".replaced-step-000000200".
std::optional<int64_t> parse_replaced_name(std::string_view name);

class CheckpointFolder {
 public:
  /// `report`: empty for log::warn.
  explicit CheckpointFolder(std::string path, Report report = {});

  const std::string& path() const { return path_; }
  std::string step_path(int64_t step) const;
  /// Where the step lies while another takes its place.
  std::string replaced_path(int64_t step) const;

  /// Names in the folder, sorted. Throws CheckpointError.
  std::vector<std::string> names() const;

  /// Folders with a proper name and a manifest, as far as the file system can say, newest first, not verified. A step
  /// that was being replaced when the process died is found where its old content lies.
  std::vector<StepFolder> list() const;

  /// The newest checkpoint that passes full verification, for `--resume auto`; each damaged one that is passed over is
  /// reported with the file's name. Nothing when there is no checkpoint at all; throws CheckpointError when there are
  /// some but none is sound.
  std::optional<OpenCheckpoint> newest_complete();

  /// Those with a sound manifest and files of the right sizes. Anything else in the folder is reported, once.
  std::vector<StoredStep> complete_steps();

  void report(const std::string& line);
  void report_once(const std::string& line);

 private:
  std::string path_;
  Report report_;
  std::set<std::string> reported_;
};

}  // namespace esm::checkpoint
