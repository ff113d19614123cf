#include "data/readers.h"

#include <glob.h>
#include <sys/stat.h>

#include "base/check.h"
#include "data/fasta_reader.h"

namespace esm::data {
namespace {

void fasta(ByteSource& source, const std::string& path, const TableOptions&, RecordSink& sink) {
  read_fasta(source, path, sink);
}
template <char kDelimiter>
void table(ByteSource& source, const std::string& path, const TableOptions& options, RecordSink& sink) {
  read_table(source, path, kDelimiter, options, sink);
}

// The first suffix that fits wins.
constexpr Format kFormats[] = {
    {"fasta", ".fasta", fasta, "", false},
    {"csv", ".csv", table<','>, "", true},
    {"tsv", ".tsv", table<'\t'>, "", true},
    {"parquet", ".parquet", nullptr, kParquetAdvice, true},
    {"fastq", ".fastq", nullptr, "FASTQ holds nucleotide reads: protein sequences are wanted, as FASTA", false},
    {"fasta", "", fasta, "", false},
};
constexpr std::string_view kPackings[] = {".gz", ".bgz", ".zst", ".zstd"};

}  // namespace

const Format& format_of(const std::string& path, std::string_view format) {
  std::string lower_case = path;
  for (char& c : lower_case)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  std::string_view name = lower_case;
  for (const std::string_view packing : kPackings)
    if (name.ends_with(packing)) {
      name.remove_suffix(packing.size());
      break;
    }
  for (const Format& row : kFormats) {
    if (format == kAutoFormat ? !name.ends_with(row.suffix) : format != row.name) continue;
    if (row.read == nullptr) fail<DataError>("{}: {}", path, row.advice);
    return row;
  }
  fail<InternalError>("the table of formats has no row '{}'", format);
}

std::vector<std::string> expand_paths(const std::vector<std::string>& patterns) {
  std::vector<std::string> files;
  for (const std::string& pattern : patterns) {
    if (pattern.empty()) fail<DataError>("an empty path was given where data are wanted");
    struct stat info {};
    if (::lstat(pattern.c_str(), &info) == 0 || pattern.find_first_of("*?[") == std::string::npos) {
      files.push_back(pattern);  // whether it can be opened is said when it is
      continue;
    }
    glob_t found{};
    const int result = ::glob(pattern.c_str(), GLOB_ERR, nullptr, &found);
    for (size_t i = 0; result == 0 && i < found.gl_pathc; ++i) files.emplace_back(found.gl_pathv[i]);
    ::globfree(&found);
    if (result == GLOB_NOMATCH) fail<DataError>("no file matches the pattern '{}'", pattern);
    if (result != 0) fail<DataError>("cannot look for files that match '{}': {}", pattern, errno_text());
  }
  return files;
}

}  // namespace esm::data
