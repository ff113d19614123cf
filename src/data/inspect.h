// What a set of sequences is made of: counts, lengths, composition, repeats, and how well batches of it fill.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "data/prepare.h"
#include "data/report.h"
#include "data/vocabulary.h"

namespace esm::data {

struct InspectOptions {
  PrepareOptions reading;     // format, table, progress, should_stop; the rest is not used
  int64_t max_tokens = 1024;  // longest sequence in a batch, <cls> and <eos> included; what is longer counts as cut
  std::vector<int64_t> budgets{1024, 2048, 4096, 8192, 16384, 32768, 65536};  // tokens_per_batch to try
};

/// How full packed batches of one budget are.
struct BatchFill {
  int64_t tokens_per_batch = 0;
  int64_t batches = 0;   // that were formed to measure it
  double fill = 0;       // share of slots that hold a token of a sequence
  double sequences = 0;  // of a batch, on average
};

struct SetReport {
  PrepareReport counts;
  std::array<int64_t, kVocabularySize> composition{};  // residues by token
  int64_t max_tokens = 0;
  int64_t overlong = 0;  // usable records above max_tokens
  std::vector<BatchFill> fills;
};

/// Reads everything that `paths` name (folders of `data prepare`, single shards, FASTA, CSV, TSV, "-", patterns)
/// without writing anything. Batches are those of the training loader with random order and a pack_window of 1024, an
/// epoch or at most 10,000 a budget (a set smaller than a batch goes round in it, as in training); budgets below
/// max_tokens are left out. Throws DataError, also for damaged shards. Memory: 20 bytes a sequence.
SetReport inspect(const std::vector<std::string>& paths, const InspectOptions& options);

std::string to_json(const SetReport& report);
/// Lines for people.
std::string to_text(const SetReport& report);

}  // namespace esm::data
