// Small data sets in a scratch folder.
#pragma once
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/philox.h"
#include "data/dataset.h"
#include "data/hdf5_shards.h"
#include "data/vocabulary.h"

namespace esm::data::test {

inline std::string test_data(const std::string& name) { return std::string(ESM_SOURCE_DIR) + "/tests/data/" + name; }
inline std::string odd(const std::string& name) { return test_data("oddities/" + name); }

class Scratch {
 public:
  std::string operator/(const std::string& name) const { return folder_.path() + "/" + name; }
  std::string write(const std::string& name, const std::string& content) const {
    std::ofstream(*this / name, std::ios::binary) << content;
    return *this / name;
  }

 private:
  ScratchFolder folder_{"esm-data"};
};

/// Residue `position` of sequence `sequence` in made_set().
inline uint8_t made_residue(int64_t sequence, int64_t position) {
  const auto word =
      philox(1, RandomStream::kSynthetic, static_cast<uint64_t>(sequence), static_cast<uint32_t>(position)).v[0];
  return static_cast<uint8_t>(kFirstAminoAcid + uniform_below(word, 20));
}

inline ShardContent made_shard(const std::vector<int64_t>& lengths) {
  ShardContent content;
  content.last = true;
  for (size_t i = 0; i < lengths.size(); ++i) {
    for (int64_t p = 0; p < lengths[i]; ++p) content.tokens.push_back(made_residue(static_cast<int64_t>(i), p));
    content.lengths.push_back(static_cast<uint32_t>(lengths[i]));
    content.ids += "made_" + std::to_string(i);
    content.id_offsets.push_back(std::ssize(content.ids));
  }
  return content;
}

/// A data set of made-up sequences of these lengths, written to `scratch`.
inline Dataset made_set(const Scratch& scratch, const std::vector<int64_t>& lengths,
                        const std::string& name = "made.h5") {
  write_shard(scratch / name, made_shard(lengths));
  return open_dataset({scratch / name}, {});
}

/// n lengths spread like proteins: 20 to about 700, a few much longer.
inline std::vector<int64_t> protein_lengths(int64_t n) {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < n; ++i) {
    const auto words = philox(2, RandomStream::kSynthetic, static_cast<uint64_t>(i));
    lengths.push_back(20 + uniform_below(words.v[0], 380) + uniform_below(words.v[1], 300) +
                      (words.v[2] % 20 == 0 ? 1500 : 0));
  }
  return lengths;
}

}  // namespace esm::data::test
