#include "data/unfinished.h"

#include <sys/stat.h>

#include <charconv>
#include <filesystem>
#include <map>
#include <string_view>

#include "base/check.h"
#include "base/files.h"
#include "base/hash.h"
#include "data/shard_folder.h"
#include "data/tokenizer.h"

namespace esm::data {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kName = "unfinished.txt";
constexpr std::string_view kFormat = "esmtrain-unfinished/1";

// The file: "n value" for each value, where n is the number of its bytes; last a hash of all that.
class Writer {
 public:
  void operator()(const std::string& text) { out_ += fmt::format("{} {}\n", text.size(), text); }
  void operator()(int64_t value) { (*this)(fmt::format("{}", value)); }
  std::string sealed() const { return out_ + hash_hex(out_); }

 private:
  std::string out_;
};

class Reader {
 public:
  explicit Reader(std::string_view text) {
    constexpr size_t kHash = 32;
    if (text.size() < kHash) fail<DataError>("cut");
    left_ = text.substr(0, text.size() - kHash);
    if (hash_hex(left_) != text.substr(left_.size())) fail<DataError>("damaged");
  }
  void operator()(std::string& text) {
    size_t n = 0;
    const auto [end, error] = std::from_chars(left_.data(), left_.data() + left_.size(), n);
    const auto digits = static_cast<size_t>(end - left_.data());
    if (error != std::errc{} || left_.size() < digits + 2 || n > left_.size() - digits - 2) fail<DataError>("damaged");
    text = left_.substr(digits + 1, n);
    left_.remove_prefix(digits + n + 2);
  }
  void operator()(int64_t& value) {
    std::string text;
    (*this)(text);
    if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc{}) fail<DataError>("damaged");
  }

 private:
  std::string_view left_;
};

// One after the other what a next call needs; `io` writes or reads.
template <class Io, class Report>
void visit_counts(Io& io, Report& r) {
  for (auto* counter : {&r.records, &r.usable, &r.residues, &r.comment_lines}) io(*counter);
  for (auto* counters : {&r.repaired_letters, &r.repaired_records})
    for (auto& n : *counters) io(n);
  for (auto& n : r.skipped) io(n);
}
template <class Io, class File>
void visit_file(Io& io, File& file) {
  io(file.path);
  for (auto* counter : {&file.bytes, &file.records, &file.usable, &file.residues}) io(*counter);
  io(file.columns);
}

std::string path_in(const std::string& folder) { return (fs::path(folder) / kName).string(); }

Unfinished parse(const std::string& text, const std::string& key) {
  Reader in(text);
  std::string format, found;
  in(format);
  in(found);
  if (format != kFormat || found != key) fail<DataError>("of other files or settings");
  Unfinished result;
  in(result.shards);
  in(result.content_hash);
  visit_counts(in, result.report);
  int64_t n = 0;
  for (in(n); n > 0; --n) {
    std::string name;
    in(name);
    in(result.report.splits[name]);
  }
  for (in(n); n > 0; --n) visit_file(in, result.report.files.emplace_back());
  for (in(n); n > 0; --n) in(result.file_hashes.emplace_back());
  return result;
}

bool shards_are_there(const std::string& folder, const Unfinished& unfinished) {
  std::string hash;
  for (int64_t i = 0; i < unfinished.shards; ++i)
    hash = chained_hash(hash, ShardFile((fs::path(folder) / shard_name(i)).string(), false).content_hash());
  return unfinished.shards > 0 && hash == unfinished.content_hash;
}

}  // namespace

std::string unfinished_key(const std::vector<std::string>& files, const PrepareOptions& options) {
  const TableOptions& t = options.table;
  Writer all;
  for (const int64_t n : {options.min_length, options.max_shard_bytes}) all(n);
  for (const std::string& text :
       {std::string(kTokenizerVersion), options.format, t.sequence_column, t.id_column, t.target_column, t.split})
    all(text);
  for (const std::string& file : files) {
    struct stat info {};
    if (::stat(file.c_str(), &info) != 0) fail<DataError>("cannot open {}: {}", file, errno_text());
    all(file);
    for (const int64_t n : {int64_t{info.st_size}, int64_t{info.st_mtim.tv_sec}, int64_t{info.st_mtim.tv_nsec}}) all(n);
  }
  return hash_hex(all.sealed());
}

void write_unfinished(const std::string& folder, const std::string& key, const Unfinished& unfinished) {
  Writer out;
  out(std::string(kFormat));
  out(key);
  out(unfinished.shards);
  out(unfinished.content_hash);
  const PrepareReport& report = unfinished.report;
  visit_counts(out, report);
  out(std::ssize(report.splits));
  for (const auto& [name, records] : report.splits) {
    out(name);
    out(records);
  }
  out(std::ssize(report.files));
  for (const FileReport& file : report.files) visit_file(out, file);
  out(std::ssize(unfinished.file_hashes));
  for (const std::string& hash : unfinished.file_hashes) out(hash);
  write_file_atomically(path_in(folder), out.sealed());
}

std::optional<Unfinished> read_unfinished(const std::string& folder, const std::string& key) {
  std::error_code error;
  if (!fs::exists(path_in(folder), error)) return std::nullopt;
  try {
    Unfinished found = parse(read_text_file(path_in(folder)), key);
    if (shards_are_there(folder, found)) return found;
  } catch (const DataError&) {
    // Then from the beginning.
  }
  return std::nullopt;
}

void remove_all_but_shards(const std::string& folder, int64_t shards) {
  std::error_code error;
  std::vector<fs::path> others;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    bool complete = false;
    for (int64_t i = 0; i < shards && !complete; ++i) complete = it->path().filename() == shard_name(i);
    if (!complete) others.push_back(it->path());
  }
  for (const fs::path& path : others)
    if (!error) fs::remove_all(path, error);
  if (error) fail<DataError>("cannot tidy up the folder {}: {}", folder, error.message());
}

}  // namespace esm::data
