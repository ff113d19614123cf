#include "train/evaluate_model.h"

#include "dist/comm.h"
#include "train/checkpointing.h"
#include "train/evaluation.h"
#include "train/memory_report.h"
#include "train/setup.h"

namespace esm::train {

std::optional<std::map<std::string, EvalMetrics>> evaluate_model(const RunConfig& config, const ModelSource& source,
                                                                 const std::vector<std::string>& files,
                                                                 const TrainOptions& options) {
  const auto comm = dist::make_single_comm();
  Evaluator evaluator(
      {{"data", open_set(config, files, "data", options)}},
      data::loader_options(config.data, static_cast<uint64_t>(config.seed), comm->rank(), comm->size()));
  const EvalOptions evaluation{.max_batches = config.eval.max_batches,
                               .should_stop = [&options] { return options.stop_signal && options.stop_signal() != 0; }};
  return with_memory_report({.config = config, .use = Use::kEvaluation}, [&] {
    const Context context = open_device(config, options.kernel_cache);
    const KernelChoice kernels = choose_kernels(context, config, options.kernel_cache, {});
    const auto model = build_model(context, config, kernels, /*training=*/false, source.inv_freq());
    load_parameters(*model, source);
    return evaluator.run(*model, *comm, evaluation);
  });
}

}  // namespace esm::train
