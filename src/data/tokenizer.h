// Letters of a sequence file -> ESM-2 tokens, with every repair counted. The policies are those of report.h, Repair.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "data/report.h"
#include "data/vocabulary.h"

namespace esm::data {

/// Turns the text of one record after another into tokens. The text of a record may come in pieces of any size.
/// White space of any kind is never a token; ESM-2's <cls> and <eos> are added when batches are made, not here.
/// Less than a nanosecond a letter.
class Tokenizer {
 public:
  /// Forgets the previous record.
  void begin();
  /// Appends the tokens of `text` to `tokens`, which must not be changed by others between begin() and finish().
  void append(std::string_view text, std::vector<uint8_t>& tokens);
  /// Ends the record: takes final stops off `tokens` again.
  void finish(std::vector<uint8_t>& tokens);

  /// Repairs of the present record, in characters.
  const RepairCounts& repairs() const { return repairs_; }
  /// Was there any repair?
  bool repaired() const { return repaired_; }

 private:
  uint8_t* append_odd(unsigned char letter, uint8_t* out);
  void count(Repair repair, int64_t n = 1);
  void stops_were_inside();

  RepairCounts repairs_{};
  bool repaired_ = false;
  int64_t trailing_stops_ = 0;  // '*' since the last residue: <unk> at the end of the tokens so far
  unsigned char previous_ = 0;  // last byte, to keep the bytes of one UTF-8 character together
};

/// Tokens of one sequence, as Tokenizer makes them.
std::vector<uint8_t> tokenize(std::string_view text);
/// Letters of tokens ("<unk>" as '?'), for messages and tests.
std::string letters_of(const std::vector<uint8_t>& tokens);

/// Changes whenever the same text would give other tokens; part of the names of caches.
inline constexpr std::string_view kTokenizerVersion = "esm2-33/1";

}  // namespace esm::data
