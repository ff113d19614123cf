#include "data/report.h"

#include <fmt/core.h>

#include <iterator>
#include <numeric>

#include "base/check.h"
#include "base/hash.h"
#include "base/json_writer.h"
#include "base/units.h"

namespace esm::data {
namespace {

struct Words {
  std::string_view name, effect;
};
constexpr std::array<Words, kRepairs> kRepairWords = {{
    {"lower_case", "lower-case letters, read as upper case"},
    {"final_stop", "'*' at the end, dropped"},
    {"inner_stop", "'*' inside, now <unk>"},
    {"letter_j", "J, now <unk>"},
    {"gap", "gap characters '-' and '.', dropped"},
    {"digit", "digits, dropped"},
    {"non_ascii", "characters outside ASCII, now <unk>"},
    {"other_character", "other characters, now <unk>"},
}};
constexpr std::array<Words, kSkips> kSkipWords = {{
    {"empty", "without a residue"},
    {"only_gaps", "nothing but gaps"},
    {"too_short", "shorter than the minimum"},
    {"no_target", "without a value in the target column; target_column none keeps them"},
    {"other_split", "of another split"},
}};

constexpr std::string_view kChecksumsKey = ",\n \"checksums\": {\n";
constexpr std::string_view kSealKey = ",\n \"report_hash\": ";

}  // namespace

std::string length_bin_name(size_t bin) {
  if (bin == kLengthBinEnds.size()) return fmt::format("over {}", kLengthBinEnds.back());
  return fmt::format("{}-{}", bin == 0 ? 1 : kLengthBinEnds[bin - 1] + 1, kLengthBinEnds[bin]);
}

std::string_view repair_name(Repair repair) { return kRepairWords.at(static_cast<size_t>(repair)).name; }
std::string_view repair_effect(Repair repair) { return kRepairWords.at(static_cast<size_t>(repair)).effect; }
std::string_view skip_name(Skip skip) { return kSkipWords.at(static_cast<size_t>(skip)).name; }
std::string_view skip_reason(Skip skip) { return kSkipWords.at(static_cast<size_t>(skip)).effect; }

int64_t PrepareReport::skipped_records() const { return std::accumulate(skipped.begin(), skipped.end(), int64_t{0}); }

std::string to_json(const PrepareReport& report) {
  ESM_CHECK(report.usable + report.skipped_records() == report.records, "{} usable + {} skipped is not {} records",
            report.usable, report.skipped_records(), report.records);
  JsonWriter json(1);
  json.begin_object();
  json.field("records", report.records).field("usable", report.usable).field("residues", report.residues);
  for (const auto& [name, counts] :
       {std::pair("repaired", &report.repaired_letters), std::pair("repaired_records", &report.repaired_records)}) {
    json.key(name).begin_object();
    for (size_t kind = 0; kind < kRepairs; ++kind)
      if ((*counts)[kind] > 0) json.field(kRepairWords[kind].name, (*counts)[kind]);
    json.end_object();
  }
  json.key("skipped").begin_object();
  for (size_t kind = 0; kind < kSkips; ++kind)
    if (report.skipped[kind] > 0) json.field(kSkipWords[kind].name, report.skipped[kind]);
  json.end_object();
  json.key("duplicates").begin_object();
  json.field("ids", report.duplicate_ids).field("sequences", report.duplicate_sequences).end_object();
  json.field("comment_lines", report.comment_lines);
  if (!report.splits.empty()) {
    json.key("splits").begin_object();
    for (const auto& [name, records] : report.splits) json.field(name, records);
    json.end_object();
  }

  const LengthStatistics& lengths = report.lengths;
  json.key("lengths").begin_object();
  json.field("shortest", lengths.shortest).field("median", lengths.median).field("longest", lengths.longest);
  json.field("mean", lengths.mean).field("deviation", lengths.deviation);
  json.key("histogram").begin_object();
  for (size_t bin = 0; bin < lengths.histogram.size(); ++bin) json.field(length_bin_name(bin), lengths.histogram[bin]);
  json.end_object().end_object();

  json.key("files").begin_array();
  for (const FileReport& file : report.files) {
    json.begin_object().field("path", file.path).field("bytes", file.bytes).field("records", file.records);
    json.field("usable", file.usable).field("residues", file.residues);
    if (!file.columns.empty()) json.field("columns", file.columns);
    json.end_object();
  }
  json.end_array();
  json.field("shards", report.shards).field("content_hash", report.content_hash);
  json.field("inputs_hash", report.inputs_hash).end_object();
  return json.text() + "\n";
}

std::string sealed_json(const PrepareReport& report, const std::map<std::string, std::string>& checksums) {
  std::string json = to_json(report);
  json.resize(json.rfind("\n}"));
  json += kChecksumsKey;
  for (auto it = checksums.begin(); it != checksums.end(); ++it)
    json += fmt::format("  \"{}\": \"{}\"{}\n", it->first, it->second, std::next(it) == checksums.end() ? "" : ",");
  json += " }";
  return json + fmt::format("{}\"{}\"\n}}\n", kSealKey, hash_hex(json));
}

bool is_sealed(const std::string& json) {
  const size_t end = json.rfind(kSealKey);
  if (end == std::string::npos) return false;
  const std::string body = json.substr(0, end);
  return json == body + fmt::format("{}\"{}\"\n}}\n", kSealKey, hash_hex(body));
}

std::map<std::string, std::string> sealed_checksums(const std::string& json) {
  std::map<std::string, std::string> checksums;
  // Names of our own files hold no quotes: between the two keys names and hashes alternate.
  size_t at = json.rfind(kChecksumsKey) + kChecksumsKey.size();
  const size_t end = json.rfind(kSealKey);
  const auto quoted = [&] {
    const size_t begin = json.find('"', at) + 1;
    at = json.find('"', begin) + 1;
    return json.substr(begin, at - 1 - begin);
  };
  while (json.find('"', at) < end) {
    const std::string name = quoted();
    checksums[name] = quoted();
  }
  return checksums;
}

std::string to_text(const PrepareReport& report) {
  std::string text = fmt::format("{} records: {} usable with {} residues, {} skipped\n", with_thousands(report.records),
                                 with_thousands(report.usable), with_thousands(report.residues),
                                 with_thousands(report.skipped_records()));
  const LengthStatistics& lengths = report.lengths;
  text += fmt::format("lengths: shortest {}, median {:.10g}, mean {:.1f}, longest {} residues\n", lengths.shortest,
                      lengths.median, lengths.mean, lengths.longest);
  for (size_t kind = 0; kind < kSkips; ++kind)
    if (report.skipped[kind] > 0)
      text += fmt::format("skipped: {} records {} ({})\n", with_thousands(report.skipped[kind]),
                          kSkipWords[kind].effect, kSkipWords[kind].name);
  for (size_t kind = 0; kind < kRepairs; ++kind)
    if (report.repaired_letters[kind] > 0)
      text += fmt::format("repaired: {} in {} records: {} ({})\n", with_thousands(report.repaired_letters[kind]),
                          with_thousands(report.repaired_records[kind]), kRepairWords[kind].effect,
                          kRepairWords[kind].name);
  if (report.comment_lines > 0)
    text += fmt::format("comment lines passed over: {}\n", with_thousands(report.comment_lines));
  if (report.duplicate_ids > 0)
    text += fmt::format("repeated ids: {} records have the id of an earlier one (kept)\n",
                        with_thousands(report.duplicate_ids));
  if (report.duplicate_sequences > 0)
    text += fmt::format("repeated sequences: {} records have the sequence of an earlier one (kept)\n",
                        with_thousands(report.duplicate_sequences));
  std::map<std::string_view, std::vector<std::string_view>> tables;  // by what was taken from them
  for (const FileReport& file : report.files)
    if (!file.columns.empty()) tables[file.columns].push_back(file.path);
  for (const auto& [columns, paths] : tables)
    text += fmt::format("{}{}: {}\n", paths.front(),
                        paths.size() > 1 ? fmt::format(" and {} more", paths.size() - 1) : "", columns);
  for (const auto& [name, records] : report.splits)
    text += fmt::format("split {}: {} records\n", name, with_thousands(records));
  if (report.splits.size() > 1)
    text += "warning: these splits are used together; `esmtrain data prepare --split` takes one of them\n";
  for (const FileReport& file : report.files)
    if (file.records == 0) text += fmt::format("warning: {} holds no record\n", file.path);
  return text;
}

}  // namespace esm::data
