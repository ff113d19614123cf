// Which residues are to be predicted, and what the model sees in their place (esm2.md 1.4: 15 % of the residues; of
// these 80 % <mask>, 10 % random, 10 % unchanged).
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/philox.h"
#include "data/data_config.h"

namespace esm::data {

/// Independent draws for each residue. One 32-bit word decides everything about a residue; the word is a pure function
/// of (seed, stream, epoch, sequence, position in the uncut sequence), so a mask does not depend on packing, ranks,
/// threads, or where a crop begins. Four neighbouring positions share one Philox block. <unk> and the special tokens
/// are never chosen. Limit: sequence below 2^40. Masks repeat after 2^24 epochs (epoch_counter() in draws.h).
class Masker {
 public:
  Masker(const MaskingConfig& config, uint64_t seed, RandomStream stream);

  /// Masks `tokens` in place: residues start, start + 1, ... of `sequence`. For each chosen one the slot
  /// (first_slot + its place in `tokens`) is appended to `scored_rows` and its true token to `targets`.
  void apply(int64_t epoch, int64_t sequence, int64_t start, std::span<uint8_t> tokens, int32_t first_slot,
             std::vector<int32_t>& scored_rows, std::vector<uint8_t>& targets) const;

 private:
  uint8_t replacement(uint32_t word, uint8_t token) const;

  uint64_t seed_;
  RandomStream stream_;
  // A word below `select_` chooses the residue; below `mask_` it becomes <mask>, from there to `random_` a random one.
  uint64_t select_, mask_, random_;
  uint8_t first_random_;
  uint32_t random_choices_;
};

}  // namespace esm::data
