#include "checkpoint/writer.h"

#include <ctime>
#include <filesystem>
#include <utility>

#include "base/check.h"

namespace esm::checkpoint {
namespace fs = std::filesystem;
namespace {

using Group = std::vector<std::pair<Role, TensorOut>>;

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  return std::string(text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts));
}

void check_request(const SaveRequest& request) {
  ESM_CHECK(request.manifest.step >= 0, "a checkpoint of step {}", request.manifest.step);
  ESM_CHECK(!request.parameters.empty(), "a checkpoint without parameters");
  if (request.exp_avg.empty() && request.exp_avg_sq.empty()) return;
  for (const auto* moments : {&request.exp_avg, &request.exp_avg_sq}) {
    ESM_CHECK(moments->size() == request.exp_avg.size() && moments->size() <= request.parameters.size(),
              "{} moments for {} parameters", moments->size(), request.parameters.size());
    for (size_t i = 0; i < moments->size(); ++i)
      ESM_CHECK((*moments)[i].name == request.parameters[i].name && (*moments)[i].shape == request.parameters[i].shape,
                "moments of '{}' given for '{}'", (*moments)[i].name, request.parameters[i].name);
  }
  const bool coded = request.exp_avg.front().dtype == DType::kF8E4M3;
  for (const auto* scales : {&request.exp_avg_scale, &request.exp_avg_sq_scale})
    ESM_CHECK(scales->size() == (coded ? request.exp_avg.size() : 0), "{} scales for {} moments of type {}",
              scales->size(), request.exp_avg.size(), dtype_name(request.exp_avg.front().dtype));
}

// Files STEM-00001-of-0000N.safetensors; adds them and their tensors to the manifest.
void write_group(FileSystem& files, const std::string& folder, std::string_view stem, const Group& group,
                 int64_t max_file_bytes, Manifest& manifest) {
  std::vector<TensorOut> tensors;
  for (const auto& [role, tensor] : group) {
    tensors.push_back(tensor);
    tensors.back().name = std::string(name_prefix(role)) + tensor.name;
  }
  const ShardPlan plan = plan_shards(tensors, max_file_bytes);
  std::vector<std::string> names;
  for (size_t file = 0; file < plan.files; ++file) {
    names.push_back(fmt::format("{}-{:05d}-of-{:05d}.safetensors", stem, file + 1, plan.files));
    std::vector<TensorOut> shard;
    for (size_t i = 0; i < tensors.size(); ++i)
      if (plan.file_of[i] == file) shard.push_back(tensors[i]);
    const WrittenFile written =
        write_safetensors(files, (fs::path(folder) / names.back()).string(), shard, {{"format", "pt"}});
    manifest.files.push_back({.name = names.back(), .bytes = written.bytes, .hash = written.hash});
  }
  for (size_t i = 0; i < group.size(); ++i) {
    const auto& [role, tensor] = group[i];
    manifest.tensors.push_back({.name = tensor.name,
                                .role = role,
                                .dtype = tensor.dtype,
                                .shape = tensor.shape,
                                .file = names[plan.file_of[i]]});
  }
}

}  // namespace

int64_t estimated_bytes(const SaveRequest& request) {
  // Headers, manifest (both some 200 bytes a tensor) and rounding to blocks.
  constexpr int64_t kPerTensor = 1024, kFixed = int64_t{1} << 16;
  int64_t bytes = kFixed;
  for (const auto* group : {&request.parameters, &request.exp_avg, &request.exp_avg_sq, &request.exp_avg_scale,
                            &request.exp_avg_sq_scale, &request.scale_state, &request.passthrough})
    for (const TensorOut& tensor : *group) bytes += tensor.byte_count() + kPerTensor;
  return bytes;
}

ShardPlan plan_shards(const std::vector<TensorOut>& tensors, int64_t max_file_bytes) {
  ShardPlan plan;
  int64_t bytes = 0;
  for (const TensorOut& tensor : tensors) {
    if (plan.files == 0 || (bytes > 0 && bytes + tensor.byte_count() > max_file_bytes)) {
      ++plan.files;
      bytes = 0;
    }
    bytes += tensor.byte_count();
    plan.file_of.push_back(plan.files - 1);
  }
  return plan;
}

void write_text(FileSystem& files, const std::string& path, std::string_view text) {
  const std::unique_ptr<OutputFile> out = files.create(path);
  out->write(std::as_bytes(std::span(text)));
  out->sync();
  out->close();
}

Manifest write_checkpoint(FileSystem& files, const std::string& folder, const SaveRequest& request,
                          int64_t max_file_bytes) {
  check_request(request);
  Manifest manifest = request.manifest;
  manifest.format_version = kFormatVersion;
  manifest.created = utc_now();
  manifest.files.clear();
  manifest.tensors.clear();
  Group model, optimizer, passthrough;
  for (const TensorOut& tensor : request.parameters) model.emplace_back(Role::kParameter, tensor);
  for (size_t i = 0; i < request.exp_avg.size(); ++i) {
    optimizer.emplace_back(Role::kExpAvg, request.exp_avg[i]);
    optimizer.emplace_back(Role::kExpAvgSq, request.exp_avg_sq[i]);
    if (request.exp_avg_scale.empty()) continue;
    optimizer.emplace_back(Role::kExpAvgScale, request.exp_avg_scale[i]);
    optimizer.emplace_back(Role::kExpAvgSqScale, request.exp_avg_sq_scale[i]);
  }
  for (const TensorOut& tensor : request.scale_state) optimizer.emplace_back(Role::kScaleState, tensor);
  for (const TensorOut& tensor : request.passthrough) passthrough.emplace_back(Role::kPassThrough, tensor);
  write_group(files, folder, "model", model, max_file_bytes, manifest);
  write_group(files, folder, "optimizer", optimizer, max_file_bytes, manifest);
  write_group(files, folder, "passthrough", passthrough, max_file_bytes, manifest);
  const std::string text = manifest_text(manifest), path = (fs::path(folder) / kManifestName).string();
  write_text(files, path, text);
  files.sync_folder(folder);
  return parse_manifest(text, path);
}

}  // namespace esm::checkpoint
