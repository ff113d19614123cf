// What `data prepare` saw, kept, repaired and skipped.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace esm::data {

/// Repairs inside a sequence. Their names in reports are stable: see repair_name().
enum class Repair {
  kLowerCase,       // lower-case letter read as upper case
  kFinalStop,       // '*' at the end: dropped
  kInnerStop,       // '*' inside: <unk>
  kLetterJ,         // J (leucine or isoleucine), which ESM-2 has no token for: <unk>, as its own tokenizer does
  kGap,             // '-' or '.' of an alignment: dropped
  kDigit,           // line numbers and the like: dropped
  kNonAscii,        // a character outside ASCII: <unk>
  kOtherCharacter,  // any other character: <unk>
};
inline constexpr int kRepairs = 8;
std::string_view repair_name(Repair repair);
/// What happens, in a few words.
std::string_view repair_effect(Repair repair);

using RepairCounts = std::array<int64_t, kRepairs>;

/// Why a record is left out.
enum class Skip {
  kEmpty,       // no residue (white space, comments and stops count for nothing)
  kOnlyGaps,    // nothing but gap characters
  kTooShort,    // below min_length
  kNoTarget,    // tables: no value in the target column
  kOtherSplit,  // tables: not of the wanted split
};
inline constexpr int kSkips = 5;
std::string_view skip_name(Skip skip);
/// "shorter than the minimum", ...
std::string_view skip_reason(Skip skip);

struct FileReport {
  std::string path;
  int64_t bytes = 0;
  int64_t records = 0;
  int64_t usable = 0;
  int64_t residues = 0;
  std::string columns;  // tables: what was taken from which column
};

/// Lengths of the usable records.
struct LengthStatistics {
  int64_t shortest = 0, longest = 0;
  double median = 0, mean = 0, deviation = 0;
  std::vector<int64_t> histogram;  // [kLengthBins]
};
/// Upper ends of the histogram's bins, in residues; one more bin is open.
inline constexpr std::array<int64_t, 12> kLengthBinEnds = {50,  100,  200,  300,  400,  512,
                                                           768, 1022, 1500, 2048, 4096, 8192};

/// "1-50", ..., "over 8192".
std::string length_bin_name(size_t bin);

struct PrepareReport {
  int64_t records = 0;
  int64_t usable = 0;
  int64_t residues = 0;
  RepairCounts repaired_letters{};        // characters
  RepairCounts repaired_records{};        // records with at least one
  std::array<int64_t, kSkips> skipped{};  // records
  int64_t duplicate_ids = 0;              // records whose id an earlier record has
  int64_t duplicate_sequences = 0;        // the same for the sequence
  int64_t comment_lines = 0;
  std::map<std::string, int64_t> splits;  // tables: usable records of train, valid and test, where a column says so
  LengthStatistics lengths;
  std::vector<FileReport> files;
  int64_t shards = 0;
  std::string content_hash;  // of the tokens and ids
  std::string inputs_hash;   // of the input files and settings
  bool already_there = false;

  int64_t skipped_records() const;
};

/// report.json: records, usable, residues, repaired{kind: letters}, repaired_records, skipped{kind: records},
/// duplicates{ids, sequences}, ... Kinds that did not occur are left out.
std::string to_json(const PrepareReport& report);
/// A few lines for people.
std::string to_text(const PrepareReport& report);

/// to_json() with the hashes of the other files of a prepared folder (name -> XXH3-128) and, last, one of all that
/// comes before it.
std::string sealed_json(const PrepareReport& report, const std::map<std::string, std::string>& checksums);
/// Is `json` what sealed_json() once returned, to the byte?
bool is_sealed(const std::string& json);
/// The hashes of the other files, from what is_sealed().
std::map<std::string, std::string> sealed_checksums(const std::string& json);

}  // namespace esm::data
