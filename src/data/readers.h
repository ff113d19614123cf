// The table of input formats, and patterns of file names.
#pragma once
#include <string>
#include <vector>

#include "data/byte_source.h"
#include "data/record_sink.h"

namespace esm::data {

using ReadFunction = void (*)(ByteSource& source, const std::string& path, RecordSink& sink);

/// The reader for a file, by its name: `.gz` at the end is ignored, then the table in readers.cpp decides; names that
/// it does not know are read as FASTA. Throws DataError for a format that is known but not read, with what to do
/// instead.
ReadFunction reader_for(const std::string& path);

/// Files that `patterns` name, in the given order, those of one pattern sorted by name. A pattern that is the name of
/// something existing stands for it, whatever characters it has. Throws DataError naming a pattern without a match.
std::vector<std::string> expand_paths(const std::vector<std::string>& patterns);

}  // namespace esm::data
