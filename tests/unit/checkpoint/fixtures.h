// Small checkpoints whose content follows from the step, and file systems that fail, dawdle or take notes.
#pragma once
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/files.h"
#include "checkpoint/store.h"

namespace esm::checkpoint {
namespace fs = std::filesystem;

/// Tensors "a" [n, 3], "b.weight" [7], "c" [2, 2, 2], their moments, and two tensors that are passed through. Every
/// value follows from (step, variant, role, index).
class Content {
 public:
  explicit Content(int64_t step, int64_t rows = 40, int64_t variant = 0) : step_(step), variant_(variant) {
    add("a", {rows, 3});
    add("b.weight", {7});
    add("c", {2, 2, 2});
  }

  SaveRequest request() const {
    SaveRequest request;
    request.manifest.step = step_;
    request.manifest.model_kind = "test";
    request.manifest.model_yaml = "layers: 2\n";
    request.manifest.config_yaml = "seed: 7\n";
    request.manifest.seed = 7;
    request.manifest.data_position_json = R"({"epoch":1,"pack":18446744073709551615})";
    request.manifest.counters_json = R"({"loss":2.8933221,"name":"Zürich"})";
    request.manifest.versions = {{"esmtrain", "0.1.0"}};
    for (const Tensor& tensor : tensors_) {
      request.parameters.push_back(out(tensor, 0));
      request.exp_avg.push_back(out(tensor, 1));
      request.exp_avg_sq.push_back(out(tensor, 2));
    }
    request.passthrough.push_back(
        {.name = "esm.position_ids", .dtype = DType::kI64, .shape = {2}, .bytes = ids_, .make = {}});
    request.passthrough.push_back({.name = "empty", .dtype = DType::kU8, .shape = {0}, .bytes = {}, .make = {}});
    return request;
  }

  /// Whether `opened` holds exactly this.
  bool equals(const OpenCheckpoint& opened) const {
    if (opened.manifest().step != step_) return false;
    const SaveRequest want = request();
    const auto same = [&](Role role, const std::vector<TensorOut>& list) {
      if (opened.tensors(role).size() != list.size()) return false;
      for (const TensorOut& tensor : list) {
        const TensorRef* found = opened.find(role, tensor.name);
        if (found == nullptr || found->shape != tensor.shape || found->dtype != tensor.dtype ||
            found->bytes.size() != tensor.bytes.size() ||
            !std::equal(tensor.bytes.begin(), tensor.bytes.end(), found->bytes.begin()))
          return false;
      }
      return true;
    };
    return same(Role::kParameter, want.parameters) && same(Role::kExpAvg, want.exp_avg) &&
           same(Role::kExpAvgSq, want.exp_avg_sq) && same(Role::kPassThrough, want.passthrough);
  }

 private:
  struct Tensor {
    std::string name;
    std::vector<int64_t> shape;
    std::vector<float> values[3];
  };

  void add(const std::string& name, std::vector<int64_t> shape) {
    Tensor tensor{.name = name, .shape = std::move(shape), .values = {}};
    for (int role = 0; role < 3; ++role)
      for (int64_t i = 0; i < element_count(tensor.shape); ++i)
        tensor.values[role].push_back(static_cast<float>(step_ * 1000 + variant_ * 10 + role * 100) +
                                      static_cast<float>(i) * 0.25f);
    tensors_.push_back(std::move(tensor));
  }
  static TensorOut out(const Tensor& tensor, int role) {
    return {.name = tensor.name,
            .dtype = DType::kF32,
            .shape = tensor.shape,
            .bytes = std::as_bytes(std::span(tensor.values[role])),
            .make = {}};
  }

  int64_t step_, variant_;
  std::vector<Tensor> tensors_;
  std::vector<std::byte> ids_ = std::vector<std::byte>(16, std::byte{5});
};

inline std::vector<std::string> entries_of(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

/// Plain writing, without waiting for the disk (ext4 waits when a file is cut and written again, hence the removal).
inline void put_file(const std::string& path, const std::string& content) {
  fs::remove(path);
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << content;
  ESM_CHECK(file.good(), "cannot write {}", path);
}

inline std::vector<int64_t> steps_of(const CheckpointStore& store) {
  std::vector<int64_t> steps;
  for (const StepFolder& folder : store.list()) steps.push_back(folder.step);
  return steps;
}

/// The real file system, without waiting for the disk, and with a hook before every operation: (operation, path,
/// bytes). The hook may throw or sleep.
class HookedFileSystem : public FileSystem {
 public:
  using Hook =
      std::function<void(const std::string& operation, const std::string& path, std::span<const std::byte> bytes)>;
  explicit HookedFileSystem(Hook hook) : hook_(std::move(hook)) {}

  std::unique_ptr<OutputFile> create(const std::string& path) override {
    hook_("create", path, {});
    return std::make_unique<File>(*this, path);
  }
  void make_folder(const std::string& path) override {
    hook_("make_folder", path, {});
    real().make_folder(path);
  }
  void rename(const std::string& from, const std::string& to) override {
    hook_("rename", from + "\n" + to, {});
    real().rename(from, to);
  }
  bool exchange(const std::string& a, const std::string& b) override {
    hook_("exchange", a + "\n" + b, {});
    return can_exchange && real().exchange(a, b);
  }
  void sync_folder(const std::string& path) override { hook_("sync_folder", path, {}); }
  void remove_folder(const std::string& path) override {
    hook_("remove_folder", path, {});
    real().remove_folder(path);
  }
  int64_t free_bytes(const std::string& path) override { return free >= 0 ? free : real().free_bytes(path); }

  bool can_exchange = true;
  int64_t free = -1;

 private:
  class File : public OutputFile {
   public:
    File(HookedFileSystem& owner, const std::string& path) : owner_(owner), path_(path), file_(real().create(path)) {}
    void write(std::span<const std::byte> bytes) override {
      owner_.hook_("write", path_, bytes);
      file_->write(bytes);
    }
    void sync() override { owner_.hook_("sync", path_, {}); }
    void close() override {
      owner_.hook_("close", path_, {});
      file_->close();
    }

   private:
    HookedFileSystem& owner_;
    std::string path_;
    std::unique_ptr<OutputFile> file_;
  };

  Hook hook_;
};

/// Options that keep the lines of the report instead of printing them. Without `files`: the real file system, unsynced.
inline StoreOptions quiet(RetentionPolicy retention = {}, FileSystem* files = nullptr,
                          std::vector<std::string>* lines = nullptr) {
  static HookedFileSystem unsynced([](const auto&...) {});
  StoreOptions options;
  options.retention = retention;
  options.report = [lines](const std::string& line) {
    if (lines != nullptr) lines->push_back(line);
  };
  options.files = files != nullptr ? files : &unsynced;
  return options;
}

}  // namespace esm::checkpoint
