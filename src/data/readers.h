// The table of input formats, and patterns of file names.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "data/byte_source.h"
#include "data/record_sink.h"
#include "data/table_reader.h"

namespace esm::data {

using ReadFunction = void (*)(ByteSource& source, const std::string& path, const TableOptions& options,
                              RecordSink& sink);

/// One row a format.
struct Format {
  std::string_view name;    // "fasta", "csv", "tsv"
  std::string_view suffix;  // of file names, lower case
  ReadFunction read;        // nullptr: known, but not read
  std::string_view advice;  // for those: what to do instead
  bool has_columns;         // TableOptions matter
};

/// In place of a format's name: the file's name decides.
inline constexpr std::string_view kAutoFormat = "auto";

/// The format of a file. kAutoFormat: by its name, without regard to case; `.gz`, `.zst` and the like at the end are
/// ignored, then the table in readers.cpp decides; names that it does not know, and standard input, are read as FASTA.
/// Throws DataError for a format that is known but not read, with what to do instead.
const Format& format_of(const std::string& path, std::string_view format = kAutoFormat);

/// Files that `patterns` name, in the given order, those of one pattern sorted by name. A pattern that is the name of
/// something existing stands for it, whatever characters it has. Throws DataError naming a pattern without a match.
std::vector<std::string> expand_paths(const std::vector<std::string>& patterns);

}  // namespace esm::data
