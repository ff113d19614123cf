#include "train/kernel_choice.h"

#include <filesystem>

#include "base/check.h"
#include "base/files.h"
#include "support/catch.h"

namespace esm::train {
namespace {

using ops::AttentionKind;

AttentionQuestion question(AttentionChoice configured, bool deterministic, const std::string& recorded) {
  return {.configured = configured,
          .deterministic = deterministic,
          .target = {.head_dim = 64, .capability = 90},
          .recorded = recorded};
}

}  // namespace

TEST_CASE("attention: what is configured, else what the checkpoint had, else a rule or the fastest") {
  const auto kind = [](AttentionChoice configured, bool deterministic, const std::string& recorded) {
    return settle_attention(question(configured, deterministic, recorded)).kind;
  };
  for (const bool deterministic : {false, true}) {
    CHECK(kind(AttentionChoice::kCudnn, deterministic, "") == AttentionKind::kCudnn);
    CHECK(kind(AttentionChoice::kCudnn, deterministic, "cudnn") == AttentionKind::kCudnn);
    CHECK(kind(AttentionChoice::kAuto, deterministic, "cudnn") == AttentionKind::kCudnn);
    CHECK(kind(AttentionChoice::kAuto, deterministic, "simple") == AttentionKind::kSimple);
  }
  CHECK(kind(AttentionChoice::kAuto, false, "") == std::nullopt);
  CHECK(kind(AttentionChoice::kAuto, false, "of a newer program") == std::nullopt);
  CHECK(kind(AttentionChoice::kAuto, true, "") == AttentionKind::kFlash2);
  CHECK(kind(AttentionChoice::kFlash2, false, "cudnn") == AttentionKind::kFlash2);
}

TEST_CASE("attention: what cannot be has a message that says what to do") {
  CHECK_THROWS_WITH(settle_attention(question(AttentionChoice::kFlash2, true, "cudnn")),
                    ContainsSubstring("the checkpoint was made with cudnn") &&
                        ContainsSubstring("leave the key attention out, or set deterministic: false"));
  CHECK_THROWS_AS(settle_attention(question(AttentionChoice::kFlash2, true, "cudnn")), ConfigError);

  AttentionQuestion q = question(AttentionChoice::kCudnn, false, "");
  q.target.head_dim = 192;
  CHECK_THROWS_AS(settle_attention(q), DeviceError);
  CHECK_THROWS_WITH(settle_attention(q), ContainsSubstring("cudnn takes head dimensions up to 128, not 192") &&
                                             ContainsSubstring("use attention: auto"));
  q = question(AttentionChoice::kFlash2, false, "");
  q.target.fp32 = true;
  CHECK_THROWS_WITH(settle_attention(q), ContainsSubstring("flash2 works in BF16 only"));

  q = question(AttentionChoice::kAuto, true, "cudnn");
  q.target.capability = 120;
  CHECK_THROWS_AS(settle_attention(q), DeviceError);
  CHECK_THROWS_WITH(settle_attention(q),
                    ContainsSubstring("does not run on sm_120") && ContainsSubstring("deterministic: false"));
  q.deterministic = false;
  CHECK(settle_attention(q).kind == std::nullopt);
}

TEST_CASE("deterministic attention is a rule") {
  CHECK(ops::deterministic_attention({.head_dim = 64, .capability = 90}) == AttentionKind::kFlash2);
  CHECK(ops::deterministic_attention({.head_dim = 64, .capability = 120}) == AttentionKind::kFlash2);
  CHECK(ops::deterministic_attention({.head_dim = 64, .capability = 75}) == AttentionKind::kSimple);
  CHECK(ops::deterministic_attention({.head_dim = 64, .capability = 90, .fp32 = true}) == AttentionKind::kSimple);
}

TEST_CASE("GEMM plans: timed ones are kept in the cache folder, deterministic runs use neither clock nor file") {
  const ScratchFolder scratch("kernels");
  const std::string folder = scratch.path() + "/made/when/needed";
  RunConfig config;
  config.deterministic = true;
  device::GemmOptions options = gemm_options(config, folder);
  CHECK(options.tuning == device::GemmTuning::kFirstHeuristic);
  CHECK(options.plan_file.empty());
  CHECK_FALSE(std::filesystem::exists(folder));

  config.deterministic = false;
  options = gemm_options(config, folder);
  CHECK(options.tuning == device::GemmTuning::kTimed);
  CHECK(options.plan_file == folder + "/gemm_plans.txt");
  CHECK(std::filesystem::is_directory(folder));
  CHECK(gemm_options(config, "").plan_file.empty());
  write_file_atomically(scratch.path() + "/file", "");
  CHECK(gemm_options(config, scratch.path() + "/file/below").plan_file.empty());
}

TEST_CASE("a run on the CPU chooses nothing and says what it is") {
  const KernelChoice choice = choose_kernels(Context{}, {}, "", {});
  CHECK_FALSE(choice.attention.has_value());
  CHECK(choice.record.at("device") == "CPU");
  CHECK(choice.record.count("LibTorch") == 1);
  CHECK(choice.record.size() == 2);
}

TEST_CASE("differences to the checkpoint are named where both sides know") {
  const KernelRecord before{{"device", "NVIDIA H200"}, {"cuDNN", "9.19.0"}, {"attention", "cudnn"}};
  CHECK(differences(before, before).empty());
  CHECK(differences({}, before).empty());
  CHECK(differences(before, {{"device", "CPU"}, {"LibTorch", "2.11.0"}}) ==
        std::vector<std::string>{
            "the checkpoint was made with device NVIDIA H200, this run has CPU: results agree within rounding only"});
  CHECK(differences(before, {{"cuDNN", "9.20.0"}, {"attention", "flash2"}}).size() == 2);
}

}  // namespace esm::train
