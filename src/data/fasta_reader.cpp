#include "data/fasta_reader.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <string>

#include "base/check.h"

namespace esm::data {
namespace {

constexpr size_t kBuffer = 1 << 20;
constexpr size_t kHeaderLimit = 4096;  // of a header, as much is kept; ids do not need more
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\v' || c == '\f'; }

// First 60 characters of a line, printable.
std::string excerpt(std::string_view line) {
  std::string text(line.substr(0, std::min(line.find('\n'), std::min<size_t>(line.size(), 60))));
  for (char& c : text)
    if (c < ' ' || c > '~') c = '?';
  return text;
}

class FastaParser {
 public:
  FastaParser(const std::string& path, RecordSink& sink) : path_(path), sink_(sink) {}

  // Takes from `text` what can be decided; returns how much. `last`: nothing follows.
  size_t parse(std::string_view text, bool last) {
    size_t at = 0;
    while (at < text.size()) {
      if (place_ == Place::kLineStart) {
        // Marks, blanks, and the first real character: decided when that is here.
        size_t first = at;
        while (first < text.size() && (is_blank(text[first]) || text.substr(first).starts_with(kByteOrderMark)))
          first += is_blank(text[first]) ? 1 : kByteOrderMark.size();
        if (!last && text.size() - first < kByteOrderMark.size() && first - at < kBuffer / 2) return at;
        at = first;
        if (at == text.size()) break;
        begin_line(text.substr(at));
        if (place_ == Place::kHeader) ++at;
      }
      const size_t end = std::min(text.find('\n', at), text.size());
      const std::string_view piece = text.substr(at, end - at);
      if (place_ == Place::kSequence && !piece.empty()) sink_.sequence(piece);
      if (place_ == Place::kHeader)
        header_.append(piece.substr(0, kHeaderLimit - std::min(kHeaderLimit, header_.size())));
      at = end;
      if (at < text.size()) {
        ++at;
        end_line();
      }
    }
    if (last) finish();
    return at;
  }

 private:
  enum class Place { kLineStart, kHeader, kSequence, kComment };

  void begin_line(std::string_view rest) {
    if (rest[0] == '>') {
      if (in_record_) sink_.end_record();
      in_record_ = false;
      place_ = Place::kHeader;
    } else if (rest[0] == ';') {
      place_ = Place::kComment;
      sink_.comment_line();
    } else if (in_record_ || rest[0] == '\n') {
      place_ = Place::kSequence;
    } else {
      const std::string line = excerpt(rest);
      const char* const advice =
          rest[0] == '@' ? ". This looks like FASTQ (nucleotide reads); protein sequences are wanted"
          : rest.substr(0, rest.find('\n')).find_first_of(",\t") != std::string_view::npos
              ? ". A table has a name that ends in .csv or .tsv, or is read with --format csv or tsv"
              : "";
      fail<DataError>("{}:{}: not FASTA: text before the first '>' header: \"{}\"{}", path_, line_, line, advice);
    }
  }

  void end_line() {
    if (place_ == Place::kHeader) begin_record();
    place_ = Place::kLineStart;
    ++line_;
  }

  void begin_record() {
    if (!seen_record_ && header_.find(" SET=") != std::string::npos &&
        header_.find(" VALIDATION=") != std::string::npos)
      fail<DataError>(
          "{}:{}: these are per-residue labels (SET= and VALIDATION= in the header), not sequences. "
          "Give the file of the sequences that they belong to",
          path_, line_);
    const size_t first = std::min(header_.find_first_not_of(" \t"), header_.size());
    const size_t end = std::min(header_.find_first_of(" \t", first), header_.size());
    sink_.begin_record(std::string_view(header_).substr(first, end - first));
    header_.clear();
    in_record_ = seen_record_ = true;
  }

  void finish() {
    if (place_ == Place::kHeader) begin_record();
    if (in_record_) sink_.end_record();
    in_record_ = false;
  }

  const std::string& path_;
  RecordSink& sink_;
  Place place_ = Place::kLineStart;
  bool in_record_ = false, seen_record_ = false;
  int64_t line_ = 1;
  std::string header_;
};

}  // namespace

void read_fasta(ByteSource& source, const std::string& path, RecordSink& sink) {
  FastaParser parser(path, sink);
  const auto memory = std::make_unique_for_overwrite<char[]>(kBuffer);  // of a small file only the front is touched
  const std::span<char> buffer(memory.get(), kBuffer);
  size_t kept = 0;        // undecided bytes at the front
  int64_t offset = 0;     // of the file's text
  bool after_cr = false;  // the last byte was a CR that became a line end
  for (bool last = false; !last;) {
    const size_t got = source.read(buffer.subspan(kept));
    last = got < buffer.size() - kept;
    char* const begin = buffer.data() + kept;
    char* end = begin + got;
    if (const void* nul = std::memchr(begin, 0, got); nul != nullptr)
      fail<DataError>("{}: not a text file: a NUL byte at offset {}", path,
                      offset + (static_cast<const char*>(nul) - begin));
    offset += static_cast<int64_t>(got);
    // Line ends of all kinds become LF: CRLF by dropping the CR (white space to the tokenizer), a lone CR by LF.
    char* skip = begin;
    if (after_cr && got > 0 && *skip == '\n') *skip = ' ';
    after_cr = false;
    for (char* cr = begin; (cr = static_cast<char*>(std::memchr(cr, '\r', static_cast<size_t>(end - cr)))) != nullptr;
         ++cr) {
      if (cr + 1 < end && cr[1] == '\n') {
        *cr = ' ';
      } else {
        *cr = '\n';
        after_cr = cr + 1 == end;
      }
    }
    const std::string_view text(buffer.data(), kept + got);
    const size_t used = parser.parse(text, last);
    kept = text.size() - used;
    std::memmove(buffer.data(), buffer.data() + used, kept);
    sink.tick();
  }
}

}  // namespace esm::data
