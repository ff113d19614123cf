#include "data/readers.h"

#include <glob.h>
#include <sys/stat.h>

#include <string_view>

#include "base/check.h"
#include "data/fasta_reader.h"

namespace esm::data {
namespace {

// One row a format; the first suffix that fits wins.
struct FormatRow {
  std::string_view suffix;
  ReadFunction read;        // nullptr: not read
  std::string_view advice;  // for those
};
constexpr FormatRow kFormats[] = {
    {".fasta", read_fasta, ""},
    {".fa", read_fasta, ""},
    {".faa", read_fasta, ""},
    {".csv", nullptr,
     "CSV is not read yet: turn the sequence column into FASTA, one '>name' line before each sequence"},
    {".tsv", nullptr,
     "TSV is not read yet: turn the sequence column into FASTA, one '>name' line before each sequence"},
    {".parquet", nullptr, "parquet is not read yet: export id and sequence as FASTA"},
    {".fastq", nullptr, "FASTQ holds nucleotide reads: protein sequences are wanted, as FASTA"},
    {"", read_fasta, ""},
};

}  // namespace

ReadFunction reader_for(const std::string& path) {
  std::string_view name = path;
  if (name.ends_with(".gz")) name.remove_suffix(3);
  for (const FormatRow& row : kFormats) {
    if (!name.ends_with(row.suffix)) continue;
    if (row.read == nullptr) fail<DataError>("{}: {}", path, row.advice);
    return row.read;
  }
  fail<InternalError>("the table of formats has no last row");
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
