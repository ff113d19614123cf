// Letters to tokens: ids, policies, and the counts of what was repaired.
#include "data/tokenizer.h"
#include "support/catch.h"

using namespace esm::data;

namespace {

std::vector<uint8_t> ids(std::initializer_list<int> values) { return {values.begin(), values.end()}; }

// Repairs of one record given as pieces.
RepairCounts repairs_of(std::initializer_list<std::string_view> pieces, std::vector<uint8_t>* out = nullptr) {
  Tokenizer tokenizer;
  std::vector<uint8_t> tokens;
  tokenizer.begin();
  for (const auto piece : pieces) tokenizer.append(piece, tokens);
  tokenizer.finish(tokens);
  if (out != nullptr) *out = tokens;
  return tokenizer.repairs();
}

int64_t count(const RepairCounts& counts, Repair kind) { return counts[static_cast<size_t>(kind)]; }

}  // namespace

TEST_CASE("every letter of ESM-2 has the id of facebookresearch/esm") {
  CHECK(tokenize("MACDEFGHIKLMNPQRSTVWYXBUZO") ==
        ids({20, 5, 23, 13, 9, 18, 6, 21, 12, 15, 4, 20, 17, 14, 16, 10, 8, 11, 7, 22, 19, 24, 25, 26, 27, 28}));
  CHECK(letters_of(tokenize("MACDEFGHIKLMNPQRSTVWYXBUZO")) == "MACDEFGHIKLMNPQRSTVWYXBUZO");
}

TEST_CASE("lower case gives the same tokens and is counted") {
  std::vector<uint8_t> tokens;
  const RepairCounts counts = repairs_of({"MrLvx"}, &tokens);
  CHECK(tokens == tokenize("MRLVX"));
  CHECK(count(counts, Repair::kLowerCase) == 3);
}

TEST_CASE("final stops are dropped, inner ones become <unk>, wherever the pieces end") {
  std::vector<uint8_t> tokens;
  RepairCounts counts = repairs_of({"MK*"}, &tokens);
  CHECK(tokens == tokenize("MK"));
  CHECK(count(counts, Repair::kFinalStop) == 1);
  counts = repairs_of({"MK", "\n", "*", "\n"}, &tokens);
  CHECK(tokens == tokenize("MK"));
  counts = repairs_of({"M*", "*K*", " **"}, &tokens);
  CHECK(tokens == ids({20, 3, 3, 15}));
  CHECK(count(counts, Repair::kInnerStop) == 2);
  CHECK(count(counts, Repair::kFinalStop) == 3);
  counts = repairs_of({"*"}, &tokens);
  CHECK(tokens.empty());
}

TEST_CASE("white space is nothing, gaps and digits are dropped and counted") {
  std::vector<uint8_t> tokens;
  const RepairCounts counts = repairs_of({"  10 MK\tV\r\n", "\v\f-L..\xC2", "\xA0"}, &tokens);
  CHECK(letters_of(tokens) == "MKVL");
  CHECK(count(counts, Repair::kDigit) == 2);
  CHECK(count(counts, Repair::kGap) == 3);
  CHECK(count(counts, Repair::kNonAscii) == 0);
}

TEST_CASE("what has no token becomes one <unk> a character") {
  std::vector<uint8_t> tokens;
  const RepairCounts counts = repairs_of({"MJ?\xC3\xA9"
                                          "j\xE2\x82\xAC",
                                          "K"},
                                         &tokens);
  CHECK(tokens == ids({20, 3, 3, 3, 3, 3, 15}));
  CHECK(count(counts, Repair::kLetterJ) == 2);
  CHECK(count(counts, Repair::kOtherCharacter) == 1);
  CHECK(count(counts, Repair::kNonAscii) == 2);
}

TEST_CASE("any cut into pieces gives the same tokens and counts") {
  const std::string text = "mKV*\xC3\xA9-12 *J\xC2\xA0LL*\xC2 .x**";
  std::vector<uint8_t> whole, cut;
  const RepairCounts counts = repairs_of({text}, &whole);
  for (size_t i = 0; i <= text.size(); ++i) {
    INFO(i);
    CHECK(repairs_of({std::string_view(text).substr(0, i), std::string_view(text).substr(i)}, &cut) == counts);
    CHECK(cut == whole);
  }
}

TEST_CASE("a record does not see the repairs of the one before") {
  Tokenizer tokenizer;
  std::vector<uint8_t> tokens;
  tokenizer.begin();
  tokenizer.append("mk*", tokens);
  tokenizer.finish(tokens);
  CHECK(tokenizer.repaired());
  tokenizer.begin();
  tokenizer.append("MK", tokens);
  tokenizer.finish(tokens);
  CHECK_FALSE(tokenizer.repaired());
  CHECK(tokenizer.repairs() == RepairCounts{});
  CHECK(letters_of(tokens) == "MKMK");
}
