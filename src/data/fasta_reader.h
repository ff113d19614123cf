// FASTA files, however they are written, as a stream of headers and pieces of sequence.
#pragma once
#include <cstdint>
#include <functional>
#include <string_view>

#include "data/byte_source.h"
#include "data/record_sink.h"

namespace esm::data {

/// Reads the whole of `source`, called `path` in messages, into `sink`. Takes LF, CRLF and lone CR line ends, a byte
/// order mark before any line, blank lines and white space anywhere, `;` comment lines, a missing last newline, lines
/// of any length, and records without a sequence. Throws DataError with path and line for text before the first '>',
/// for NUL bytes (not a text file), and for files of per-residue labels in the FLIP layout.
void read_fasta(ByteSource& source, const std::string& path, RecordSink& sink);

}  // namespace esm::data
