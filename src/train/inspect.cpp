#include "train/inspect.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "checkpoint/folder.h"
#include "config/config.h"
#include "models/name_map.h"
#include "train/model_source.h"
#include "train/run_config.h"
#include "train/run_folder.h"

namespace esm::train {
namespace fs = std::filesystem;
using checkpoint::Role;
using checkpoint::Verify;
namespace {

constexpr char kCheckpointsName[] = "checkpoints";

int64_t bytes_of(const fs::path& path) {
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  return error ? 0 : static_cast<int64_t>(bytes);
}

// "a/b/" names the same folder as "a/b", which is what the parent of a path wants.
std::string without_slash(const fs::path& path) {
  std::string text = path.string();
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

// For a command line that people paste into a shell.
std::string quoted(const std::string& path) {
  const bool plain = std::ranges::all_of(path, [](unsigned char c) {
    return std::isalnum(c) != 0 || std::string_view("/._-+=:,@%").find(static_cast<char>(c)) != std::string_view::npos;
  });
  if (plain && !path.empty()) return path;
  std::string text = "'";
  for (const char c : path) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

// --- where it lies -----------------------------------------------------------------------------------------------

struct Found {
  bool native = false;
  std::string path;
  std::vector<RunCheckpoint> siblings;
  std::vector<std::string> notes;
};

Found newest_in(const std::string& folder) {
  Found found{.native = true};
  checkpoint::CheckpointFolder checkpoints(folder, [&found](const std::string& line) { found.notes.push_back(line); });
  std::vector<checkpoint::StoredStep> complete = checkpoints.complete_steps();
  std::ranges::sort(complete, {}, &checkpoint::StoredStep::step);
  if (complete.empty()) {
    const std::vector<checkpoint::StepFolder> listed = checkpoints.list();
    if (listed.empty()) fail<CheckpointError>("{}: there is no complete checkpoint in this folder", folder);
    found.path = listed.front().path;  // to say what is wrong with it
    found.notes.clear();
    return found;
  }
  found.path = complete.back().path;
  const auto best = checkpoint::best_of(complete);
  for (const checkpoint::StoredStep& stored : complete)
    found.siblings.push_back({.step = stored.step,
                              .metric = stored.metric,
                              .pinned = stored.pinned,
                              .best = best.has_value() && best->step == stored.step,
                              .described = stored.step == complete.back().step});
  return found;
}

Found find(const std::string& given) {
  const std::string path = without_slash(given);
  const fs::path where(path);
  if (!fs::exists(where)) fail<CheckpointError>("{}: no such file or folder", path);
  if (!fs::is_directory(where)) return {.path = path};
  if (fs::exists(where / checkpoint::kManifestName)) return {.native = true, .path = path};
  if (fs::is_directory(where / kCheckpointsName)) return newest_in((where / kCheckpointsName).string());
  if (checkpoint::parse_temporary_name(where.filename().string()).has_value())
    fail<CheckpointError>("{}: a checkpoint that was never finished (it has no {}); use a complete one beside it", path,
                          checkpoint::kManifestName);
  if (!checkpoint::CheckpointFolder(path).list().empty()) return newest_in(path);
  return {.path = path};
}

// --- resuming ----------------------------------------------------------------------------------------------------

// What comes after the checkpoint in its folder, if any.
std::optional<int64_t> newer_than(int64_t step, const std::string& checkpoints) {
  const auto listed = checkpoint::CheckpointFolder(checkpoints).list();
  if (listed.empty() || listed.front().step <= step) return std::nullopt;
  return listed.front().step;
}

ResumeAdvice resume_advice(const CheckpointFacts& facts, const std::string& path) {
  const checkpoint::Manifest& manifest = facts.manifest;
  if (facts.moments.empty() || !facts.state.has_value())
    return {.command = "",
            .note = fmt::format("it holds weights only; a new run starts from them with: esmtrain train CONFIG "
                                "--init_from {}",
                                quoted(path))};
  RunConfig config;
  try {
    config::load_text(config, manifest.config_yaml, path + "/manifest.json (config)");
  } catch (const ConfigError& e) {
    return {.command = "", .note = fmt::format("this version of the program does not take its config: {}", e.what())};
  }
  ResumeAdvice advice{.possible = true, .command = "esmtrain train ", .note = ""};
  const auto add_note = [&advice](const std::string& text) { advice.note += (advice.note.empty() ? "" : "; ") + text; };
  // RUN/checkpoints/step-N, with RUN/config.yaml beside it.
  const fs::path folder = fs::absolute(path).lexically_normal().parent_path(), run = folder.parent_path();
  if (folder.filename() != kCheckpointsName || !fs::exists(run / "config.yaml")) {
    advice.command += fmt::format("CONFIG --resume {}", quoted(path));
    add_note("CONFIG: that of its run, with a run.dir that has no checkpoints of its own");
  } else {
    // Relative if the path was given so.
    const std::string run_dir =
        fs::path(path).is_absolute() ? run.string() : without_slash((fs::path(path) / ".." / "..").lexically_normal());
    advice.command += quoted(run_dir + "/config.yaml");
    std::error_code ignored;
    if (!fs::equivalent(config.run.dir, run, ignored)) advice.command += " --run.dir " + quoted(run_dir);
    if (const auto newer = newer_than(manifest.step, folder.string()); newer.has_value()) {
      advice.command += " --resume " + quoted(path);
      add_note(fmt::format("the run's newer checkpoints (up to step {}) are then removed", *newer));
    } else {
      advice.command += " --resume auto";
    }
  }
  if (facts.state->stopped_early)
    add_note("the run is over: validation no longer improved");
  else if (manifest.step >= config.train.max_steps)
    add_note(fmt::format("the run is over (step {} of {}); --train.max_steps N goes on", manifest.step,
                         config.train.max_steps));
  return advice;
}

// --- our own -----------------------------------------------------------------------------------------------------

void check_files(const std::string& path, const checkpoint::Manifest& manifest, Verify verify, Inspection& found) {
  const fs::path manifest_path = fs::path(path) / checkpoint::kManifestName;
  found.files.push_back({.name = checkpoint::kManifestName,
                         .bytes = bytes_of(manifest_path),
                         .check = InspectedFile::Check::kContent,  // it holds its own hash
                         .problem = ""});
  for (const checkpoint::FileEntry& entry : manifest.files) {
    InspectedFile file{.name = entry.name, .bytes = bytes_of(fs::path(path) / entry.name), .problem = ""};
    try {
      checkpoint::check_file(path, entry, verify);
      file.check = verify == Verify::kContent ? InspectedFile::Check::kContent : InspectedFile::Check::kSize;
    } catch (const CheckpointError& e) {
      file.check = InspectedFile::Check::kDamaged;
      file.problem = e.what();
      found.problems.emplace_back(e.what());
    }
    found.files.push_back(std::move(file));
  }
}

void read_manifest_facts(const checkpoint::Manifest& manifest, Inspection& found) {
  CheckpointFacts& own = *found.own;
  for (const checkpoint::TensorEntry& tensor : manifest.tensors) {
    if (tensor.role == Role::kExpAvg || tensor.role == Role::kExpAvgSq) ++own.moments[tensor.dtype];
    if (tensor.role == Role::kPassThrough) found.passed_through.push_back(tensor.name);
    if (tensor.role != Role::kParameter) continue;
    ++found.weights[tensor.dtype];
    const bool contact = tensor.name.starts_with("contact.");
    found.contact_head = found.contact_head || contact;
    if (!contact) found.parameters += checkpoint::element_count(tensor.shape);
  }
  found.versions = manifest.versions;
  found.model = read_model_config(manifest, found.path);
  if (!manifest.config_yaml.empty() && !own.moments.empty()) own.state = TrainState::from_json(manifest.counters_json);
  if (!manifest.origin_json.empty())
    own.imported_from = format_name(parse_origin(manifest.origin_json, found.path).format);
}

Inspection inspect_native(Found where, Verify verify) {
  Inspection found;
  found.path = std::move(where.path);
  found.format = Format::kNative;
  found.notes = std::move(where.notes);
  found.own.emplace();
  found.own->manifest = checkpoint::load_manifest(found.path);
  found.own->siblings = std::move(where.siblings);
  const checkpoint::Manifest& manifest = found.own->manifest;
  check_files(found.path, manifest, verify, found);
  try {
    read_manifest_facts(manifest, found);
    if (found.problems.empty()) found.source = open_model(found.path, Verify::kSizes);  // hashed above, if at all
  } catch (const CheckpointError& e) {
    found.problems.emplace_back(e.what());
  }
  if (found.problems.empty())
    found.own->resume = resume_advice(*found.own, found.path);
  else
    found.own->resume.note = "it is damaged";
  return found;
}

// --- foreign formats ---------------------------------------------------------------------------------------------

void add_foreign_file(const fs::path& path, Inspection& found) {
  found.files.push_back({.name = path.filename().string(), .bytes = bytes_of(path), .problem = ""});
}

Inspection inspect_foreign(const std::string& path) {
  Inspection found;
  found.path = path;
  found.source = open_model(path);
  const ModelSource& source = *found.source;
  const ModelSource::Impl& impl = source.impl();
  found.format = source.format();
  found.model = source.config();
  found.parameters = source.parameter_count();
  found.contact_head = source.has("contact.weight");
  std::map<const checkpoint::TensorRef*, DType> parts;
  for (const auto& [name, pieces] : impl.parts)
    for (const ModelSource::Impl::Part& part : pieces) parts[part.tensor] = part.tensor->dtype;
  for (const auto& [tensor, dtype] : parts) ++found.weights[dtype];
  found.passed_through = source.report().passed_through;
  found.notes = source.report().notes;
  for (const checkpoint::TorchFile& file : impl.torch_files) add_foreign_file(file.path(), found);
  if (!impl.files.has_value()) return found;
  const fs::path folder = fs::is_directory(path) ? fs::path(path) : fs::path(path).parent_path();
  add_foreign_file(folder / "config.json", found);
  if (const fs::path index = folder / "model.safetensors.index.json"; fs::is_directory(path) && fs::exists(index))
    add_foreign_file(index, found);
  for (const checkpoint::SafetensorsFile& file : impl.files->files()) add_foreign_file(file.path(), found);
  for (const checkpoint::SafetensorsFile& file : impl.side_files) add_foreign_file(file.path(), found);
  const auto config = nlohmann::json::parse(impl.origin->config_json, nullptr, false);
  if (config.is_object())
    if (const auto it = config.find("transformers_version"); it != config.end() && it->is_string())
      found.versions["transformers"] = it->get<std::string>();
  return found;
}

}  // namespace

Inspection inspect_model(const std::string& path, Verify verify) {
  Found where = find(path);
  return where.native ? inspect_native(std::move(where), verify) : inspect_foreign(where.path);
}

}  // namespace esm::train
