// CSV and TSV tables with a header, as a stream of records: which column is the sequence, which the id.
#pragma once
#include <string>
#include <string_view>

#include "data/byte_source.h"
#include "data/record_sink.h"

namespace esm::data {

/// In place of a column's name: no such column is used.
inline constexpr std::string_view kNoColumn = "none";

/// Which columns of a table are taken. Empty names: the usual ones are tried, without regard to case.
struct TableOptions {
  std::string sequence_column;  // else sequence, seq, protein_sequence, aa_sequence, aa_seq, mutated_sequence, protein
  std::string id_column;        // else id, name, accession, entry, ...; "none", or none of them there: no ids
  std::string target_column;    // rows without a value in it are left out; else target; "none": rows are kept
  std::string split;            // train, valid or test: only these rows (columns set and validation of FLIP tables)
};

/// Reads the whole of `source`, called `path` in messages, into `sink`. RFC 4180: fields in double quotes may hold the
/// delimiter, line ends and doubled quotes. Takes LF, CRLF and lone CR line ends, a byte order mark, blank lines and a
/// missing last newline. The first line that is not blank holds the names of the columns. Memory: one row.
/// Throws DataError with path, line and column: no sequence column (listing those that are there), a row with another
/// number of fields, a quote that does not end or is followed by text, a NUL byte, a row above 256 MiB.
void read_table(ByteSource& source, const std::string& path, char delimiter, const TableOptions& options,
                RecordSink& sink);

}  // namespace esm::data
