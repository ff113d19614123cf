// The 33 tokens of ESM-2 in the order of facebookresearch/esm `Alphabet("ESM-1b")`.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace esm::data {

inline constexpr int kVocabularySize = 33;
inline constexpr std::array<std::string_view, kVocabularySize> kTokenNames = {
    "<cls>", "<pad>", "<eos>", "<unk>", "L", "A", "G", "V", "S", "E", "R", "T", "I", "D", "P",        "K",     "Q",
    "N",     "F",     "Y",     "M",     "H", "W", "C", "X", "B", "U", "Z", "O", ".", "-", "<null_1>", "<mask>"};

inline constexpr uint8_t kClsToken = 0;
inline constexpr uint8_t kPadToken = 1;
inline constexpr uint8_t kEosToken = 2;
inline constexpr uint8_t kUnknownToken = 3;
inline constexpr uint8_t kFirstAminoAcid = 4;  // L
inline constexpr uint8_t kLastAminoAcid = 23;  // C: 4..23 are the twenty standard residues
inline constexpr uint8_t kLastResidue = 30;    // 24..30 are X B U Z O . -
inline constexpr uint8_t kMaskToken = 32;

/// May this token stand for a residue in a stored sequence? (<unk> may: it is a residue that has no letter.)
constexpr bool is_residue(uint8_t token) { return token >= kUnknownToken && token <= kLastResidue; }
/// Tokens that masking may choose; <unk> is a special token there, as in the Hugging Face collator.
constexpr bool is_maskable(uint8_t token) { return token >= kFirstAminoAcid && token <= kLastResidue; }

/// <cls> and <eos> of every sequence.
inline constexpr int64_t kSpecialsPerSequence = 2;

}  // namespace esm::data
