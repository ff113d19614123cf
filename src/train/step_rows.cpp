#include "train/step_rows.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/files.h"

namespace esm::train {

void cut_lines(const std::string& path, const std::function<bool(std::string_view line, bool ended)>& keep) {
  if (!std::filesystem::exists(path)) return;
  const std::string text = read_text_file(path);
  std::string kept;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    if (keep(line, line.size() < rest.size())) kept.append(line) += '\n';
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
  }
  if (kept != text) write_file_atomically(path, kept);
}

const std::string& cut_json_rows(const std::string& path, int64_t through_step, std::string_view repeated) {
  cut_lines(path, [&](std::string_view line, bool) {
    const auto row = nlohmann::json::parse(line, nullptr, false);
    if (!row.is_object() || !row.contains("step") || !row["step"].is_number_integer()) return false;
    const int64_t step = row["step"];
    return step < through_step || (step == through_step && (repeated.empty() || !row.contains(repeated)));
  });
  return path;
}

}  // namespace esm::train
