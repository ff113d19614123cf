#include "data/tokenizer.h"

#include <array>
#include <string>

namespace esm::data {
namespace {

constexpr uint8_t kOdd = 0x80;    // no token: append_odd() decides
constexpr uint8_t kLower = 0x40;  // lower-case form of a letter with a token

// Letters of the vocabulary. Gap characters have tokens too (29, 30) but are dropped: ESM-2 was trained on unaligned
// sequences, and gaps in a FASTA file come from alignments.
constexpr std::array<uint8_t, 256> make_table() {
  std::array<uint8_t, 256> table{};
  table.fill(kOdd);
  for (uint8_t token = kFirstAminoAcid; token <= kLastResidue; ++token) {
    const char letter = kTokenNames[token][0];
    if (letter < 'A' || letter > 'Z') continue;
    table[static_cast<unsigned char>(letter)] = token;
    table[static_cast<unsigned char>(letter - 'A' + 'a')] = token | kLower;
  }
  return table;
}
constexpr std::array<uint8_t, 256> kTable = make_table();

constexpr std::ptrdiff_t kTogether = 8;

// Tokens of the letters from `at` on, if all kTogether of them have one; otherwise what is at `out` is meaningless.
bool take_letters(const char* at, uint8_t* out, unsigned& lower) {
  uint8_t seen = 0;
  for (std::ptrdiff_t i = 0; i < kTogether; ++i) seen |= out[i] = kTable[static_cast<unsigned char>(at[i])];
  if ((seen & (kOdd | kLower)) == 0) return true;
  if ((seen & kOdd) != 0) return false;
  for (std::ptrdiff_t i = 0; i < kTogether; ++i) {
    lower += out[i] / kLower;
    out[i] &= kLower - 1;
  }
  return true;
}

}  // namespace

void Tokenizer::begin() {
  if (repaired_) repairs_.fill(0);
  repaired_ = false;
  trailing_stops_ = 0;
  previous_ = 0;
}

void Tokenizer::count(Repair repair, int64_t n) {
  if (n == 0) return;
  repairs_[static_cast<size_t>(repair)] += n;
  repaired_ = true;
}

void Tokenizer::stops_were_inside() {
  count(Repair::kInnerStop, trailing_stops_);
  trailing_stops_ = 0;
}

void Tokenizer::append(std::string_view text, std::vector<uint8_t>& tokens) {
  // Each byte gives one token at most.
  const size_t before = tokens.size();
  tokens.resize(before + text.size());
  uint8_t* out = tokens.data() + before;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    const uint8_t* const run = out;
    unsigned lower = 0;
    while (end - at >= kTogether && take_letters(at, out, lower)) at += kTogether, out += kTogether;
    for (; at < end; ++at) {
      const uint8_t entry = kTable[static_cast<unsigned char>(*at)];
      if ((entry & kOdd) != 0) break;
      lower += entry / kLower;
      *out++ = entry & (kLower - 1);
    }
    if (out != run) {
      stops_were_inside();
      count(Repair::kLowerCase, lower);
      previous_ = 0;
    }
    if (at < end) out = append_odd(static_cast<unsigned char>(*at++), out);
  }
  tokens.resize(static_cast<size_t>(out - tokens.data()));
}

uint8_t* Tokenizer::append_odd(unsigned char letter, uint8_t* out) {
  const unsigned char previous = previous_;
  previous_ = letter;
  if (letter == ' ' || (letter >= '\t' && letter <= '\r')) return out;
  if (letter == '-' || letter == '.') {
    count(Repair::kGap);
    return out;
  }
  if (letter >= '0' && letter <= '9') {
    count(Repair::kDigit);
    return out;
  }
  if (letter == '*') {
    // Whether it is a final or an inner stop is known when the next residue, or the end, comes.
    ++trailing_stops_;
    *out++ = kUnknownToken;
    return out;
  }
  if (letter >= 0x80 && letter < 0xC0 && previous >= 0x80) {
    // A later byte of a UTF-8 character that is counted already. C2 A0, the no-break space, is white space after all.
    if (previous == 0xC2 && letter == 0xA0) {
      --repairs_[static_cast<size_t>(Repair::kNonAscii)];
      return out - 1;
    }
    if (previous == 0xC2) stops_were_inside();
    return out;
  }
  if (letter != 0xC2) stops_were_inside();
  if (letter >= 0x80)
    count(Repair::kNonAscii);
  else
    count(letter == 'J' || letter == 'j' ? Repair::kLetterJ : Repair::kOtherCharacter);
  *out++ = kUnknownToken;
  return out;
}

void Tokenizer::finish(std::vector<uint8_t>& tokens) {
  count(Repair::kFinalStop, trailing_stops_);
  tokens.resize(tokens.size() - static_cast<size_t>(trailing_stops_));
  trailing_stops_ = 0;
}

std::vector<uint8_t> tokenize(std::string_view text) {
  Tokenizer tokenizer;
  std::vector<uint8_t> tokens;
  tokenizer.begin();
  tokenizer.append(text, tokens);
  tokenizer.finish(tokens);
  return tokens;
}

std::string letters_of(const std::vector<uint8_t>& tokens) {
  std::string letters;
  for (const uint8_t token : tokens) letters += is_maskable(token) ? kTokenNames[token][0] : '?';
  return letters;
}

}  // namespace esm::data
