// The memory plan against models on a CUDA device, and a run that does not fit.
#include "device/memory.h"
#include "ops/attention_memory.h"
#include "parity_gpu/device.h"
#include "support/batches.h"
#include "support/catch.h"
#include "support/torch.h"
#include "train/memory_report.h"
#include "train/optimizer.h"
#include "train/setup.h"

namespace esm::test {

TEST_CASE("parts of a plan are those of a model on the device, after its first steps") {
  train::RunConfig config;
  config.model.layers = 3;
  config.model.hidden = 256;
  config.model.heads = 4;
  config.data.tokens_per_batch = 1024;
  config.data.max_tokens = 128;
  config.attention =
      GENERATE(train::AttentionChoice::kCudnn, train::AttentionChoice::kFlash2, train::AttentionChoice::kSimple);
  config.train.recompute = GENERATE(nn::Recompute::kNone, nn::Recompute::kSelective, nn::Recompute::kFull);
  CAPTURE(static_cast<int>(config.attention), static_cast<int>(config.train.recompute));
  const train::MemoryPlan plan = train::plan_memory(config, train::present_place(config));

  const auto model = train::build_model(gpu(), config, train::choose_kernels(gpu(), config, "", {}), true, {});
  train::Optimizer(gpu(), model->units(), config.optimizer);
  model->init_parameters(1);
  const data::Batch batch =
      make_batch({random_row(1, 60), random_row(2, 1), random_row(3, 33), random_row(4, 101)}, 1024);
  for (int step = 0; step < 3; ++step) model->forward_backward(batch);  // as it is, recorded, replayed
  const std::vector<ops::MemoryPart> actual = train::memory_parts(*model);
  REQUIRE(actual.size() + 3 == plan.parts.size());  // allocator, GEMM workspace, context
  for (size_t i = 0; i < actual.size(); ++i) {
    CAPTURE(actual[i].name, actual[i].bytes, plan.parts[i].bytes);
    CHECK(actual[i].name == plan.parts[i].name);
    if (actual[i].name == ops::Workspace::kAttentionPart)
      CHECK(static_cast<double>(actual[i].bytes) == Approx(static_cast<double>(plan.parts[i].bytes)).epsilon(0.05));
    else
      CHECK(actual[i].bytes == plan.parts[i].bytes);
  }
}

TEST_CASE("cuDNN asks for the workspace that is predicted") {
  const int64_t head_dim = GENERATE(16, 24, 32, 64, 80, 96, 128);
  const bool deterministic = GENERATE(false, true);
  const ops::AttentionSizes sizes{.tokens = 8192,
                                  .heads = 20,
                                  .head_dim = head_dim,
                                  .capacity = 32,
                                  .max_seqlen = 1024,
                                  .deterministic = deterministic};
  const auto backend = ops::make_attention_backend(ops::AttentionKind::kCudnn, sizes);
  const int64_t predicted = ops::attention_memory(ops::AttentionKind::kCudnn, sizes).workspace_bytes;
  CAPTURE(head_dim, deterministic, backend->workspace_bytes(), predicted);
  CHECK(static_cast<double>(backend->workspace_bytes()) == Approx(static_cast<double>(predicted)).epsilon(0.05));
}

TEST_CASE("a model beyond the device's memory ends in the table; the device works on") {
  train::RunConfig config;
  config.model.layers = 36;
  config.model.hidden = 2560;
  config.model.heads = 40;
  config.data.tokens_per_batch = 1 << 19;
  config.attention = train::AttentionChoice::kCudnn;
  const train::KernelChoice kernels = train::choose_kernels(gpu(), config, "", {});
  const auto build = [&] { return train::build_model(gpu(), config, kernels, /*training=*/true, {}); };
  CHECK_THROWS_WITH(train::with_memory_report({.config = config}, build),
                    ContainsSubstring("out of device memory") && ContainsSubstring("queries, keys, values") &&
                        ContainsSubstring("would fit, as data.tokens_per_batch at most: "));
  config.model.layers = 1;
  config.data.tokens_per_batch = 1024;
  CHECK(build()->parameter_count() > 0);
}

}  // namespace esm::test
