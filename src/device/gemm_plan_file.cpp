#include "device/gemm_plan_file.h"

#include <charconv>
#include <filesystem>
#include <optional>
#include <string_view>

#include "base/check.h"
#include "base/files.h"

namespace esm::device {
namespace {

constexpr std::string_view kHeader = "# esmtrain GEMM plans 1: found by timing, safe to delete";

bool exists(const std::string& path) {
  std::error_code ignored;  // a folder that may not be entered
  return std::filesystem::exists(path, ignored);
}

std::vector<std::string_view> lines_of(std::string_view content) {
  std::vector<std::string_view> lines;
  while (!content.empty()) {
    const size_t end = content.find('\n');
    if (end == std::string_view::npos) break;  // a last line without its end was cut off
    if (end > 0 && content[0] != '#') lines.push_back(content.substr(0, end));
    content.remove_prefix(end + 1);
  }
  return lines;
}

template <class T>
bool parse_whole(std::string_view word, T& value) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  return error == std::errc{} && end == word.data() + word.size();
}

std::optional<GemmAlgoBytes> parse_algo(std::string_view hex) {
  GemmAlgoBytes algo{};
  if (hex.size() != 16 * algo.size()) return std::nullopt;
  for (size_t i = 0; i < algo.size(); ++i) {
    const std::string_view word = hex.substr(16 * i, 16);
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), algo[i], 16);
    if (error != std::errc{} || end != word.data() + word.size()) return std::nullopt;
  }
  return algo;
}

bool take_prefix(std::string_view& text, std::string_view prefix) {
  if (text.substr(0, prefix.size()) != prefix) return false;
  text.remove_prefix(prefix.size());
  return true;
}

/// `rest` of a line of this scope: "<key>\tus=..\talgo=..". A plan that is there already stays.
bool parse_record(std::string_view rest, GemmPlanRecords& into) {
  const size_t key_end = rest.find('\t');
  const size_t us_end = key_end == std::string_view::npos ? key_end : rest.find('\t', key_end + 1);
  if (us_end == std::string_view::npos) return false;
  std::string_view us = rest.substr(key_end + 1, us_end - key_end - 1), algo = rest.substr(us_end + 1);
  GemmPlanRecord record;
  if (key_end == 0 || !take_prefix(us, "us=") || !take_prefix(algo, "algo=")) return false;
  const std::optional<GemmAlgoBytes> bytes = parse_algo(algo);
  if (!bytes || !parse_whole(us, record.microseconds)) return false;
  record.algo = *bytes;
  into.emplace(rest.substr(0, key_end), record);
  return true;
}

}  // namespace

std::string GemmPlanScope::text() const {
  return fmt::format("cublaslt={}\tdevice={}\tsms={}\tworkspace={}", cublaslt_version, device, sm_count,
                     workspace_bytes);
}

GemmPlanRecords read_gemm_plans(const std::string& path, const GemmPlanScope& scope, int64_t* damaged_lines) {
  GemmPlanRecords plans;
  if (!exists(path)) return plans;
  const std::string content = read_text_file(path), prefix = scope.text() + '\t';
  for (std::string_view line : lines_of(content)) {
    if (take_prefix(line, prefix)) {
      if (!parse_record(line, plans) && damaged_lines != nullptr) ++*damaged_lines;
    } else if (!line.starts_with("cublaslt=") && damaged_lines != nullptr) {
      ++*damaged_lines;
    }
  }
  return plans;
}

void write_gemm_plans(const std::string& path, const GemmPlanScope& scope, const GemmPlanRecords& plans) {
  const std::string prefix = scope.text() + '\t';
  std::string content = std::string(kHeader) + '\n';
  GemmPlanRecords all = plans;
  if (exists(path)) {
    const std::string old = read_text_file(path);
    for (std::string_view line : lines_of(old)) {
      if (!line.starts_with("cublaslt=")) continue;
      if (!line.starts_with(prefix))
        content.append(line).push_back('\n');
      else
        parse_record(line.substr(prefix.size()), all);
    }
  }
  for (const auto& [key, record] : all) {
    content += fmt::format("{}{}\tus={:.2f}\talgo=", prefix, key, record.microseconds);
    for (const uint64_t word : record.algo) content += fmt::format("{:016x}", word);
    content += '\n';
  }
  write_file_atomically(path, content);
}

}  // namespace esm::device
