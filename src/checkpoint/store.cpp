#include "checkpoint/store.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <random>
#include <system_error>

#include "base/check.h"
#include "base/files.h"
#include "base/json_writer.h"
#include "base/units.h"

namespace esm::checkpoint {
namespace fs = std::filesystem;
namespace {

// Letters that a folder name can hold.
std::string this_host() {
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0) return "host";
  std::string host = name;
  for (char& c : host)
    if (!is_plain_file_name(std::string("a") + c)) c = '_';
  return host.empty() ? "host" : host;
}

bool process_lives(int pid) { return ::kill(pid, 0) == 0 || errno == EPERM; }

}  // namespace

CheckpointStore::CheckpointStore(std::string folder, StoreOptions options)
    : folder_(std::move(folder), options.report),
      options_(std::move(options)),
      files_(options_.files != nullptr ? *options_.files : FileSystem::real()),
      host_(this_host()) {
  ESM_CHECK(options_.retention.keep_last >= 1, "keep_last is {}", options_.retention.keep_last);
  std::random_device random;
  nonce_ = fmt::format("{:08x}{:08x}", random(), random());
  files_.make_folder(path());
  settle_replaced();
  remove_leftovers();
}

void CheckpointStore::check_free_space(int64_t bytes) const {
  const int64_t available = files_.free_bytes(path());
  if (available < bytes)
    fail<DiskFullError>("{}: {} are needed, {} are free; make room or keep fewer checkpoints", path(),
                        human_bytes(bytes), human_bytes(available));
}

void CheckpointStore::check_writable() {
  const std::string probe = (fs::path(path()) / fmt::format("{}probe-{}", kTrashPrefix, unique_suffix())).string();
  files_.make_folder(probe);
  files_.remove_folder(probe);
}

// --- saving ------------------------------------------------------------------------------------------------------

SaveResult CheckpointStore::save(const SaveRequest& request) {
  const int64_t step = request.manifest.step;
  SaveResult result;
  result.path = step_path(step);
  const std::string temporary = fmt::format("{}{}{}-{}-{}", result.path, kTemporaryMark, host_, ::getpid(), nonce_);
  const auto clean_up_and_explain = [&](const std::exception& e) {
    remove_quietly(temporary);
    return fmt::format("the checkpoint of step {} was not saved: {}", step, e.what());
  };
  try {
    files_.make_folder(path());  // it may have been removed during the run
    // What a process left that was killed between its commit and its clean-up, so that there are never more than
    // keep_last + 1. Only when some checkpoint is known to be sound: sizes alone do not say that.
    if (sound_step_.has_value()) apply_retention(*sound_step_);
    check_free_space(estimated_bytes(request));
    files_.make_folder(temporary);
    const Manifest manifest = write_checkpoint(files_, temporary, request, options_.max_file_bytes);
    for (const FileEntry& file : manifest.files) result.bytes += file.bytes;
    result.already_there = !commit(temporary, manifest);
  } catch (const DiskFullError& e) {
    throw DiskFullError(clean_up_and_explain(e));
  } catch (const CheckpointError& e) {
    throw CheckpointError(clean_up_and_explain(e));
  } catch (const std::system_error& e) {  // of the standard library's file system or threads
    throw CheckpointError(clean_up_and_explain(e));
  } catch (...) {
    remove_quietly(temporary);
    throw;
  }
  sound_step_ = step;
  result.removed = apply_retention(step);
  return result;
}

// False when the same content stands there already.
bool CheckpointStore::commit(const std::string& temporary, const Manifest& manifest) {
  const std::string final_path = step_path(manifest.step);
  const auto rename_and_sync = [&] {
    files_.rename(temporary, final_path);
    files_.sync_folder(path());
    return true;
  };
  std::error_code error;
  const fs::file_status found = fs::symlink_status(final_path, error);
  if (!fs::status_known(found)) fail<CheckpointError>("cannot look at {}: {}", final_path, error.message());
  if (!fs::exists(found)) return rename_and_sync();
  if (!path_exists(final_path + "/" + kManifestName))
    fail<CheckpointError>("{} is there and is not a checkpoint; move it away", final_path);
  Manifest old;
  try {
    old = read_manifest(final_path, Verify::kContent);
  } catch (const CheckpointError& e) {
    folder_.report(fmt::format("{}; this step is saved anew", e.what()));
    set_damaged_aside(final_path);
    return rename_and_sync();
  }
  old.created = manifest.created;
  if (old == manifest) {
    remove_quietly(temporary);
    return false;
  }
  if (files_.exchange(temporary, final_path)) {
    files_.sync_folder(path());
    trash(temporary);  // which now holds the old content
  } else {
    replace(temporary, manifest.step);
  }
  return true;
}

// At every moment the old content or the new one has a name that list() knows. Each rename is on the disk before the
// next one is asked for.
void CheckpointStore::replace(const std::string& temporary, int64_t step) {
  const std::string final_path = step_path(step), aside = folder_.replaced_path(step);
  settle_replaced(step);  // of an earlier time, when it could not be removed
  files_.rename(final_path, aside);
  try {
    files_.sync_folder(path());
    files_.rename(temporary, final_path);
  } catch (const CheckpointError&) {
    settle_replaced(step);
    throw;
  }
  files_.sync_folder(path());
  settle_replaced(step);
}

// A replaced step without its successor goes back to its place; with it, it goes. Never throws: what cannot be done now
// is done before a later save or start, and meanwhile does no harm.
void CheckpointStore::settle_replaced(int64_t step) {
  const std::string final_path = step_path(step), aside = folder_.replaced_path(step);
  try {
    if (!path_exists(aside)) return;
    if (path_exists(final_path + "/" + kManifestName)) {
      trash(aside);
    } else if (!path_exists(final_path)) {
      files_.rename(aside, final_path);
      files_.sync_folder(path());
    }
  } catch (const CheckpointError& e) {
    folder_.report_once(e.what());
  }
}

void CheckpointStore::settle_replaced() {
  for (const std::string& name : folder_.names())
    if (const std::optional<int64_t> step = parse_replaced_name(name); step.has_value()) settle_replaced(*step);
}

void CheckpointStore::set_damaged_aside(const std::string& damaged) {
  const std::string name = fs::path(damaged).filename().string();
  const std::string aside = (fs::path(path()) / fmt::format("{}{}-{}", kDamagedPrefix, name, unique_suffix())).string();
  files_.rename(damaged, aside);
  folder_.report(fmt::format("the damaged {} is kept as {}", name, aside));
}

std::optional<OpenCheckpoint> CheckpointStore::newest_complete() {
  std::optional<OpenCheckpoint> newest = folder_.newest_complete();
  if (newest.has_value()) sound_step_ = newest->manifest().step;
  return newest;
}

// --- removing ----------------------------------------------------------------------------------------------------

// sound_step is kept in any case. Whatever goes wrong here is reported, never thrown.
std::vector<std::string> CheckpointStore::apply_retention(int64_t sound_step) {
  std::vector<std::string> removed;
  try {
    settle_replaced();
    const std::vector<StoredStep> complete = folder_.complete_steps();
    write_best_file(complete);
    for (const int64_t step : steps_to_remove(complete, options_.retention, sound_step))
      if (trash(step_path(step))) removed.push_back(step_path(step));
    remove_leftovers();
  } catch (const std::exception& e) {
    folder_.report_once(fmt::format("removing old checkpoints: {}", e.what()));
  }
  return removed;
}

std::vector<std::string> CheckpointStore::discard_newer_than(int64_t step) {
  read_manifest(step_path(step), Verify::kSizes);
  std::vector<std::string> removed;
  for (const StepFolder& newer : list()) {
    if (newer.step <= step) break;
    if (path_exists(newer.path + "/" + kPinnedName)) {
      folder_.report(fmt::format("{} is newer than the checkpoint resumed from, but pinned; it stays", newer.path));
    } else if (trash(newer.path)) {
      removed.push_back(newer.path);
    }
  }
  return removed;
}

void CheckpointStore::write_best_file(const std::vector<StoredStep>& complete) {
  const std::optional<StoredStep> best = best_of(complete);
  if (!best.has_value()) return;
  JsonWriter json;
  json.begin_object().field("step", best->step).field("metric", *best->metric);
  json.field("folder", step_folder_name(best->step)).end_object();
  const std::string text = json.text() + "\n", file = (fs::path(path()) / kBestName).string();
  if (!path_exists(file) || read_text_file(file) != text) write_file_atomically(file, text);
}

// Renamed first, so that a half-removed folder is never taken for a checkpoint.
bool CheckpointStore::trash(const std::string& unwanted) {
  const std::string name = fs::path(unwanted).filename().string();
  const std::string aside = (fs::path(path()) / fmt::format("{}{}-{}", kTrashPrefix, name, unique_suffix())).string();
  try {
    files_.rename(unwanted, aside);
    files_.sync_folder(path());
  } catch (const CheckpointError& e) {
    folder_.report_once(fmt::format("an old checkpoint stays: {}", e.what()));
    return false;
  }
  remove_quietly(aside);
  return true;
}

void CheckpointStore::remove_quietly(const std::string& unwanted) {
  try {
    files_.remove_folder(unwanted);
  } catch (const CheckpointError& e) {
    folder_.report_once(e.what());
  }
}

void CheckpointStore::remove_leftovers() {
  const std::vector<StepFolder> steps = list();
  const int64_t newest = steps.empty() ? -1 : steps.front().step;
  for (const std::string& name : folder_.names()) {
    const std::string leftover = (fs::path(path()) / name).string();
    if (name.starts_with(kTrashPrefix)) {
      remove_quietly(leftover);
      continue;
    }
    const std::optional<TemporaryName> temporary = parse_temporary_name(name);
    if (!temporary.has_value() || temporary->nonce == nonce_) continue;
    // Our own process number under another nonce is that of a dead process (numbers come again, in containers at once).
    const bool dead = temporary->host == host_ ? temporary->pid == ::getpid() || !process_lives(temporary->pid)
                                               : temporary->step <= newest;
    if (dead) remove_quietly(leftover);
  }
}

std::string CheckpointStore::unique_suffix() { return fmt::format("{}-{}", nonce_, ++counter_); }

}  // namespace esm::checkpoint
