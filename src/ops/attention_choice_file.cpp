#include "ops/attention_choice_file.h"

#include <charconv>
#include <filesystem>
#include <string_view>

#include "base/check.h"
#include "base/files.h"
#include "ops/version.h"

namespace esm::ops {
namespace {

constexpr std::string_view kHeader = "# esmtrain attention choices 1: found by timing, safe to delete";

struct Line {
  std::string_view key;
  KeptAttention choice;
};

/// Takes `prefix` and what follows up to the next tab.
std::optional<std::string_view> take_field(std::string_view& text, std::string_view prefix) {
  const size_t end = text.find('\t');
  if (!text.starts_with(prefix) || end == std::string_view::npos) return std::nullopt;
  const std::string_view value = text.substr(prefix.size(), end - prefix.size());
  text.remove_prefix(end + 1);
  return value;
}

std::optional<Line> parse(std::string_view text) {
  Line line;
  const auto name = take_field(text, "attention=");
  const auto us = name.has_value() ? take_field(text, "us=") : std::nullopt;
  const auto kind = us.has_value() ? find_attention_kind(*name) : std::nullopt;
  if (!kind.has_value() || text.empty()) return std::nullopt;
  const auto [end, error] = std::from_chars(us->data(), us->data() + us->size(), line.choice.microseconds);
  if (error != std::errc{} || end != us->data() + us->size()) return std::nullopt;
  line.key = text;
  line.choice.kind = *kind;
  return line;
}

/// body(text of the line, its choice) for every sound line.
template <class Body>
void for_each_line(const std::string& path, const Body& body) {
  std::error_code ignored;  // a folder that may not be entered
  if (!std::filesystem::exists(path, ignored)) return;
  const std::string content = read_text_file(path);
  std::string_view rest = content;
  for (size_t end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
    const std::string_view text = rest.substr(0, end);
    rest.remove_prefix(end + 1);
    if (const std::optional<Line> line = parse(text)) body(text, *line);
  }
}

}  // namespace

std::string attention_choice_key(const std::string& device, const AttentionSizes& sizes) {
  return fmt::format("device={}\tcudnn={}\tlibtorch={}\ttokens={}\theads={}\thead_dim={}\tcapacity={}\tmax_seqlen={}",
                     device, cudnn_version(), libtorch_version(), sizes.tokens, sizes.heads, sizes.head_dim,
                     sizes.capacity, sizes.max_seqlen);
}

std::optional<KeptAttention> read_attention_choice(const std::string& path, const std::string& key) {
  std::optional<KeptAttention> found;
  for_each_line(path, [&](std::string_view, const Line& line) {
    if (line.key == key) found = line.choice;
  });
  return found;
}

void write_attention_choice(const std::string& path, const std::string& key, const KeptAttention& choice) {
  std::string content = fmt::format("{}\n", kHeader);
  for_each_line(path, [&](std::string_view text, const Line& line) {
    if (line.key != key) content.append(text).push_back('\n');
  });
  content += fmt::format("attention={}\tus={:.1f}\t{}\n", attention_kind_name(choice.kind), choice.microseconds, key);
  write_file_atomically(path, content);
}

}  // namespace esm::ops
