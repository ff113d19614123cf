#include "data/inspect.h"

#include <algorithm>
#include <filesystem>

#include "base/check.h"
#include "base/json_writer.h"
#include "base/units.h"
#include "data/packer.h"
#include "data/readers.h"
#include "data/record_counter.h"
#include "data/sampler.h"
#include "data/shard_folder.h"

namespace esm::data {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kMeasuredBatches = 10000;
constexpr int64_t kPackWindow = 1024;
constexpr uint64_t kSeed = 1;
constexpr int kBarWidth = 40;

class Composition : public RecordCounter {
 public:
  explicit Composition(const PrepareOptions& options) : RecordCounter(options) {}
  const std::array<int64_t, kVocabularySize>& residues() const { return residues_; }
  using RecordCounter::statistics;

 private:
  void usable(std::string_view, std::span<const uint8_t> tokens) override {
    for (const uint8_t token : tokens) ++residues_[token];
  }
  std::array<int64_t, kVocabularySize> residues_{};
};

BatchFill fill_of(const std::vector<uint32_t>& lengths, int64_t budget_tokens, int64_t max_tokens,
                  int64_t tokens_in_all) {
  const auto tokens_of = [&](const Draw& sample) {
    const auto index = EpochOrder(kSeed, sample.epoch, std::ssize(lengths)).at(sample.position);
    return std::min(lengths[static_cast<size_t>(index)] + kSpecialsPerSequence, max_tokens);
  };
  PackerOptions options;
  options.budget_tokens = budget_tokens;
  options.max_tokens = max_tokens;
  options.window = kPackWindow;
  options.sets = {{.samples = std::ssize(lengths)}};
  options.tokens_of = tokens_of;
  Packer packer(std::move(options));
  BatchFill result;
  result.tokens_per_batch = budget_tokens;
  result.batches = std::clamp<int64_t>((tokens_in_all + budget_tokens - 1) / budget_tokens, 1, kMeasuredBatches);
  int64_t tokens = 0, sequences = 0;
  BatchPlan plan;
  for (int64_t batch = 0; batch < result.batches; ++batch) {
    packer.next(plan);
    sequences += std::ssize(plan.samples);
    for (const Draw& sample : plan.samples) tokens += tokens_of(sample);
  }
  const auto batches = static_cast<double>(result.batches);
  result.fill = static_cast<double>(tokens) / (batches * static_cast<double>(budget_tokens));
  result.sequences = static_cast<double>(sequences) / batches;
  return result;
}

double share(int64_t part, int64_t whole) {
  return whole > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

// Tokens that occur, the most frequent first.
std::vector<size_t> by_frequency(const std::array<int64_t, kVocabularySize>& composition) {
  std::vector<size_t> tokens;
  for (size_t token = 0; token < composition.size(); ++token)
    if (composition[token] > 0) tokens.push_back(token);
  std::stable_sort(tokens.begin(), tokens.end(), [&](size_t a, size_t b) { return composition[a] > composition[b]; });
  return tokens;
}

}  // namespace

SetReport inspect(const std::vector<std::string>& paths, const InspectOptions& options) {
  PrepareOptions reading = options.reading;
  reading.min_length = 1;
  Composition set(reading);
  std::vector<std::string> files;
  for (const std::string& path : expand_paths(paths)) {
    std::error_code error;
    const bool prepared = fs::is_directory(path, error) || is_hdf5(path);
    if (prepared && !reading.table.split.empty())
      fail<DataError>("{}: what is prepared has no splits; leave --split out", path);
    if (fs::is_directory(path, error)) {
      for (const auto& shard : open_shard_folder(path, true)) set.read_shard(*shard);
    } else if (prepared) {
      set.read_shard(ShardFile(path, true));
    } else {
      files.push_back(path);
    }
  }
  set.read_files(files);

  SetReport report;
  report.counts = set.finish();
  report.composition = set.residues();
  report.max_tokens = options.max_tokens;
  if (report.counts.usable == 0)
    fail<DataError>("no usable sequence in {}: {} records, all skipped", paths.empty() ? "nothing" : paths.front(),
                    report.counts.records);
  int64_t tokens = 0;
  for (const uint32_t length : set.statistics().lengths()) {
    report.overlong += length + kSpecialsPerSequence > options.max_tokens ? 1 : 0;
    tokens += std::min(length + kSpecialsPerSequence, options.max_tokens);
  }
  for (const int64_t budget : options.budgets)
    if (budget >= options.max_tokens)
      report.fills.push_back(fill_of(set.statistics().lengths(), budget, options.max_tokens, tokens));
  return report;
}

std::string to_json(const SetReport& report) {
  JsonWriter json(1);
  json.begin_object().key("data").raw(to_json(report.counts));
  json.key("composition").begin_object();
  for (const size_t token : by_frequency(report.composition)) json.field(kTokenNames[token], report.composition[token]);
  json.end_object();
  json.field("max_tokens", report.max_tokens).field("overlong", report.overlong);
  json.key("fill").begin_array();
  for (const BatchFill& fill : report.fills)
    json.begin_object()
        .field("tokens_per_batch", fill.tokens_per_batch)
        .field("fill", fill.fill)
        .field("sequences", fill.sequences)
        .field("batches", fill.batches)
        .end_object();
  json.end_array().end_object();
  return json.text() + "\n";
}

std::string to_text(const SetReport& report) {
  const PrepareReport& counts = report.counts;
  std::string text = to_text(counts);
  if (counts.files.size() > 1)
    for (const FileReport& file : counts.files)
      text += fmt::format("file {}: {} records, {} residues\n", file.path, with_thousands(file.records),
                          with_thousands(file.residues));
  text += "\nlengths (residues)\n";
  const auto& bins = counts.lengths.histogram;
  const int64_t most = *std::max_element(bins.begin(), bins.end());
  for (size_t bin = 0; bin < bins.size(); ++bin) {
    if (bins[bin] == 0) continue;
    const auto bar = static_cast<size_t>((bins[bin] * kBarWidth + most - 1) / most);
    text += fmt::format("{:>12} {:>12} {:5.1f} % {}\n", length_bin_name(bin), with_thousands(bins[bin]),
                        share(bins[bin], counts.usable), std::string(bar, '#'));
  }
  text += fmt::format("{} records are longer than max_tokens {} ({:.1f} %)\n", with_thousands(report.overlong),
                      report.max_tokens, share(report.overlong, counts.usable));
  text += "\ncomposition\n";
  for (const size_t token : by_frequency(report.composition))
    text += fmt::format("{:>12} {:>12} {:6.2f} %\n", kTokenNames[token], with_thousands(report.composition[token]),
                        share(report.composition[token], counts.residues));
  text += fmt::format("\nfill of packed batches, max_tokens {}\n{:>16} {:>9} {:>20}\n", report.max_tokens,
                      "tokens_per_batch", "fill", "sequences in a batch");
  for (const BatchFill& fill : report.fills)
    text += fmt::format("{:>16} {:7.2f} % {:>20.1f}\n", fill.tokens_per_batch, 100 * fill.fill, fill.sequences);
  return text;
}

}  // namespace esm::data
