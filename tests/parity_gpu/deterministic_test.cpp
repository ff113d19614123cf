// Whole training runs with deterministic: true have equal bits, and so has a resumed one.
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/philox.h"
#include "checkpoint/open_checkpoint.h"
#include "support/catch.h"
#include "train/trainer.h"

namespace esm::test {
namespace {

/// Proteins of 20 to 900 residues: long ones are split over blocks whose sums a careless backward adds up in any order.
void write_proteins(const std::string& path) {
  std::string fasta;
  for (uint64_t s = 0; s < 200; ++s) {
    fasta += fmt::format(">{}\n", s);
    const uint32_t length = 20 + uniform_below(philox(1, RandomStream::kSynthetic, s).v[0], 880);
    for (uint32_t i = 0; i < length; ++i)
      fasta += "ACDEFGHIKLMNPQRSTVWY"[uniform_below(philox(2, RandomStream::kSynthetic, s, i).v[0], 20)];
    fasta += '\n';
  }
  write_file_atomically(path, fasta);
}

train::RunConfig config_of(const std::string& folder, const std::string& run, train::AttentionChoice attention) {
  train::RunConfig config;
  config.run.dir = folder + "/" + run;
  config.device = train::DeviceChoice::kCuda;
  config.deterministic = true;
  config.attention = attention;
  config.precision = precision::Precision::kBf16;
  config.model.layers = 2;
  config.model.hidden = 128;
  config.model.heads = 4;
  config.data.train["default"] = {folder + "/proteins.fasta"};
  config.data.cache_dir = folder + "/cache";
  config.data.max_tokens = 1024;
  config.data.tokens_per_batch = 4096;
  config.train.max_steps = 8;
  config.train.micro_batches = 2;
  config.train.threads = 2;
  config.checkpoint.every_steps = 4;
  config.optimizer.lr = 1e-3;
  config.schedule.warmup_steps = 2;
  return config;
}

std::string checkpoint_of(const train::RunConfig& config, int64_t step) {
  return fmt::format("{}/checkpoints/{}", config.run.dir, checkpoint::step_folder_name(step));
}

/// Hashes of weights and moments, by file.
std::map<std::string, std::string> tensors(const train::RunConfig& config) {
  std::map<std::string, std::string> hashes;
  for (const checkpoint::FileEntry& file : checkpoint::read_manifest(checkpoint_of(config, 8)).files)
    hashes[file.name] = file.hash;
  return hashes;
}

/// Loss and gradient norm of each step, as they were printed.
std::map<std::string, std::string> metrics(const train::RunConfig& config) {
  const std::string text = read_text_file(config.run.dir + "/metrics.jsonl");
  const auto field = [](const std::string& line, const std::string& name) {
    const size_t at = line.find("\"" + name + "\"");
    return at == std::string::npos ? "" : line.substr(at, line.find(',', at) - at);
  };
  std::map<std::string, std::string> rows;
  for (size_t begin = 0, end = text.find('\n'); end != std::string::npos;
       begin = end + 1, end = text.find('\n', begin)) {
    const std::string line = text.substr(begin, end - begin);
    rows[field(line, "step")] = field(line, "loss") + field(line, "grad_norm");
  }
  return rows;
}

}  // namespace

TEST_CASE("deterministic runs have equal bits, a resumed one too, with every attention") {
  using train::AttentionChoice;
  const AttentionChoice attention =
      GENERATE(AttentionChoice::kAuto, AttentionChoice::kFlash2, AttentionChoice::kCudnn, AttentionChoice::kSimple);
  CAPTURE(enum_names(attention)[static_cast<size_t>(attention)]);
  const ScratchFolder scratch("deterministic");
  write_proteins(scratch.path() + "/proteins.fasta");

  const train::RunConfig first = config_of(scratch.path(), "first", attention);
  CHECK(train::train(first, {}).reason == train::StopReason::kFinished);
  const auto expected_tensors = tensors(first), expected_metrics = metrics(first);
  REQUIRE(expected_tensors.size() >= 2);
  REQUIRE(expected_metrics.size() >= 8);
  const auto kernels = checkpoint::read_manifest(checkpoint_of(first, 8)).kernels;
  CHECK(kernels.count("attention") == 1);
  CHECK(kernels.count("device") == 1);

  // A cache full of timed choices, as other runs leave it, changes nothing.
  train::TrainOptions options;
  options.kernel_cache = scratch.path() + "/kernels";
  train::RunConfig free = config_of(scratch.path(), "free", AttentionChoice::kAuto);
  free.deterministic = false;
  free.train.max_steps = 1;
  train::train(free, options);
  CHECK(std::filesystem::exists(options.kernel_cache + "/gemm_plans.txt"));

  const train::RunConfig second = config_of(scratch.path(), "second", attention);
  train::train(second, options);
  CHECK(tensors(second) == expected_tensors);
  CHECK(metrics(second) == expected_metrics);

  const train::RunConfig resumed = config_of(scratch.path(), "resumed", attention);
  options.resume = checkpoint_of(first, 4);
  train::train(resumed, options);
  CHECK(tensors(resumed) == expected_tensors);
  const auto rows = metrics(resumed);
  CHECK(rows.size() == 4);
  for (const auto& [step, row] : rows) CHECK(row == expected_metrics.at(step));

  train::RunConfig other = config_of(scratch.path(), "other", AttentionChoice::kSimple);
  if (kernels.at("attention") != "simple")
    CHECK_THROWS_WITH(train::train(other, options), ContainsSubstring("goes on with the same"));
}

}  // namespace esm::test
