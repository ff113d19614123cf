// Configuration of the data: what is read, how it is cut, packed and masked.
#pragma once
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "config/field.h"

namespace esm::data {

/// How sequences share a batch. kPacked: one after the other; kBshd: one a row, padded to the longest of the batch.
enum class Layout { kPacked, kBshd };
constexpr auto enum_names(Layout) { return std::array{"packed", "bshd"}; }

/// What happens to a sequence of more than max_tokens - 2 residues. kCrop: a random piece, another one each epoch;
/// kTruncate: its beginning; kWindow: overlapping pieces that cover it, each a sample of its own; kSkip: left out.
enum class Overlong { kCrop, kTruncate, kWindow, kSkip };
constexpr auto enum_names(Overlong) { return std::array{"crop", "truncate", "window", "skip"}; }

/// Where a random residue is drawn from: kAminoAcids: the 20 standard ones; kAllTokens: all 33 ids, special ones
/// included, as the Hugging Face collator and NVIDIA's recipe do it (the loss then reads lower: esm2.md 1.4).
enum class RandomResidues { kAminoAcids, kAllTokens };
constexpr auto enum_names(RandomResidues) { return std::array{"amino_acids", "all_tokens"}; }

/// When the checksums of shards are compared. kLazy: each chunk when it is first read; kOpen: all at the start.
enum class Verify { kNone, kLazy, kOpen };
constexpr auto enum_names(Verify) { return std::array{"none", "lazy", "open"}; }

struct MaskingConfig {
  ESM_CONFIG(MaskingConfig)
  double rate = 0.15;
  ESM_FIELD(rate, "Share of the residues that are to be predicted.", config::between(0, 1), config::Resume::kWarn)
  double mask_share = 0.8;
  ESM_FIELD(mask_share, "Share of those that become <mask>.", config::between(0, 1), config::Resume::kWarn)
  double random_share = 0.1;
  ESM_FIELD(random_share, "Share of those that become a random residue; what is left stays as it is.",
            config::between(0, 1), config::Resume::kWarn)
  RandomResidues random_residues = RandomResidues::kAminoAcids;
  ESM_FIELD(random_residues,
            "Random residues come from the 20 amino acids, or from all 33 tokens as in the Hugging Face collator; "
            "losses compare only under the same choice.",
            config::Resume::kWarn)
};

struct DataConfig {
  ESM_CONFIG(DataConfig)
  std::map<std::string, std::vector<std::string>> train;
  ESM_FIELD(
      train,
      "Training data: FASTA, CSV or TSV files (plain, gzip or zstd), patterns like 'dir/*.fasta.gz', shards or "
      "folders of `esmtrain data prepare`; a path, a list, or lists by name. Without data.weights all are read as one "
      "set.",
      config::non_empty(), config::default_name("train"), config::Resume::kWarn)
  std::map<std::string, double> weights;
  ESM_FIELD(weights,
            "A mixture: how often sequences are drawn from each of the sets that data.train names, as numbers relative "
            "to each other, e.g. {uniref: 0.7, mine: 0.3}. Each set has epochs of its own. Empty: no mixture.",
            config::Resume::kWarn)
  std::map<std::string, std::vector<std::string>> clusters;
  ESM_FIELD(
      clusters,
      "Tables of clusters: CSV or TSV files (plain, gzip or zstd) with the columns cluster and member, which holds "
      "ids of the training data. An epoch then draws one member of each cluster, another one each epoch; sequences "
      "in no cluster are left out. A path, a list, or lists by name of the training set.",
      config::default_name("train"), config::Resume::kWarn)
  std::map<std::string, std::vector<std::string>> valid;
  ESM_FIELD(valid, "Validation sets by name, each evaluated by itself; same forms as data.train.",
            config::default_name("valid"), config::Resume::kFree)
  std::string sequence_column;
  ESM_FIELD(sequence_column,
            "Column of CSV and TSV files with the sequences; empty: sequence, seq, protein_sequence, aa_sequence, "
            "aa_seq, mutated_sequence or protein, the first that is there.",
            config::Resume::kWarn)
  std::string id_column;
  ESM_FIELD(id_column, "Their column with the ids; empty: id, name, accession, entry, ... if there; none: no ids.",
            config::Resume::kWarn)
  std::string target_column;
  ESM_FIELD(target_column,
            "Rows without a value in this column are left out and counted; empty: target, if there; none: all rows are "
            "kept.",
            config::Resume::kWarn)
  std::string cache_dir;
  ESM_FIELD(cache_dir,
            "Where FASTA, CSV and TSV files are kept as shards; empty: $XDG_CACHE_HOME/esmtrain/data or "
            "~/.cache/esmtrain/data.",
            config::Resume::kFree)
  int64_t max_tokens = 1024;
  ESM_FIELD(max_tokens, "Longest sequence in tokens, <cls> and <eos> included.", config::between(3, 1e9),
            config::Resume::kWarn)
  int64_t tokens_per_batch = 8192;
  ESM_FIELD(tokens_per_batch, "Token slots of a micro-batch on each rank.", config::multiple_of(128),
            config::Resume::kWarn)
  Layout layout = Layout::kPacked;
  ESM_FIELD(layout, "Sequences packed one after the other, or one a row with padding.", config::Resume::kWarn)
  bool bucketed = false;
  ESM_FIELD(bucketed, "With layout bshd: batches of sequences of like length, in random order.", config::Resume::kWarn)
  Overlong overlong = Overlong::kCrop;
  ESM_FIELD(overlong, "Sequences above max_tokens in training; validation always truncates.", config::Resume::kWarn)
  int64_t window_stride = 512;
  ESM_FIELD(window_stride, "With overlong window: residues from one piece to the next.", config::at_least(1),
            config::Resume::kWarn)
  int64_t pack_window = 1024;
  ESM_FIELD(pack_window, "Sequences among which the packer (or the bucketing) looks for what fits.",
            config::between(1, 65536), config::Resume::kWarn)
  int64_t loader_threads = 1;
  ESM_FIELD(loader_threads, "Threads that make batches ahead; 0: none, made when asked for. Does not change the data.",
            config::between(0, 256), config::Resume::kFree)
  int64_t prefetch = 4;
  ESM_FIELD(prefetch, "Batches held ready at most.", config::between(1, 1024), config::Resume::kFree)
  Verify verify = Verify::kLazy;
  ESM_FIELD(verify, "Checksums of the shards: each piece when first read, all at the start, or never.",
            config::Resume::kFree)
  MaskingConfig masking;
  ESM_GROUP(masking, "Which residues are to be predicted.")

  void cross_check(config::Problems& problems) const {
    if (tokens_per_batch > 10'000'000'000'000)
      problems.add("tokens_per_batch", "{} slots are more than the 10^13 that a micro-batch may have",
                   tokens_per_batch);
    if (tokens_per_batch < max_tokens)
      problems.add("tokens_per_batch", "tokens_per_batch {} must be at least max_tokens {}: a sequence would not fit",
                   tokens_per_batch, max_tokens);
    if (layout == Layout::kBshd && tokens_per_batch < (max_tokens + 7) / 8 * 8)
      problems.add("tokens_per_batch", "with layout bshd a row is padded to a multiple of 8: {} slots do not hold {}",
                   tokens_per_batch, max_tokens);
    if (bucketed && layout != Layout::kBshd)
      problems.add("bucketed", "bucketed needs data.layout: bshd (packed batches have nothing to gain from it)");
    if (overlong == Overlong::kWindow && window_stride > max_tokens - 2)
      problems.add("window_stride", "window_stride {} would leave gaps: at most max_tokens - 2 = {}", window_stride,
                   max_tokens - 2);
    if (masking.mask_share + masking.random_share > 1.0 + 1e-9)
      problems.add("masking.random_share", "mask_share {} and random_share {} together are above 1", masking.mask_share,
                   masking.random_share);
    for (const auto& [key, sets] : {std::pair("train", &train), {"valid", &valid}, {"clusters", &clusters}})
      for (const auto& [name, paths] : *sets)
        if (paths.empty()) problems.add(key, "the set '{}' names no files", name);
    check_weights(problems);
    check_clusters(problems);
  }

 private:
  void check_weights(config::Problems& problems) const {
    for (const auto& [name, weight] : weights) {
      if (!train.contains(name))
        problems.add("weights", "there is no set '{}' in data.train, only {}", name, train_names());
      else if (!(weight > 0) || !std::isfinite(weight))
        problems.add("weights",
                     "expected a number above 0 for '{}', found {}; take a set that is not wanted out of "
                     "data.train and data.weights",
                     name, weight);
    }
    for (const auto& [name, paths] : train)
      if (!weights.empty() && !weights.contains(name))
        problems.add("weights", "the set '{}' of data.train has no weight", name);
  }
  void check_clusters(config::Problems& problems) const {
    if (clusters.empty()) return;
    if (weights.empty() && train.size() > 1)
      problems.add("clusters",
                   "without data.weights the {} sets of data.train are one: write its files as a list without names, "
                   "or give weights",
                   train.size());
    for (const auto& [name, paths] : clusters)
      if (!train.contains(name))
        problems.add("clusters", "there is no set '{}' in data.train, only {}", name, train_names());
    if (overlong == Overlong::kWindow)
      problems.add("clusters", "overlong window draws every piece of every sequence: use crop, truncate or skip");
  }
  std::string train_names() const {
    std::string names;
    for (const auto& [name, paths] : train) names += (names.empty() ? "" : ", ") + name;
    return names;
  }
};

}  // namespace esm::data
