#include "train/bench_data.h"

#include "train/bench_batches.h"
#include "train/host_meter.h"

namespace esm::train {

BenchDataResult bench_data(const RunConfig& given, int64_t tokens, const std::string& data_cache) {
  RunConfig config = given;
  config.data.loader_threads = 0;
  BenchBatches batches(config, {.real_data = true, .data_cache = data_cache});
  data::Batch batch;
  for (int64_t done = 0; done < tokens; done += batch.real_tokens) batches.next(batch);
  BenchDataResult result;
  const double start = processor_ms();
  while (result.real_tokens < tokens) {
    batches.next(batch);
    ++result.batches;
    result.real_tokens += batch.real_tokens;
    result.padded_tokens += batch.budget();
    result.scored_tokens += batch.n_scored();
  }
  result.processor_ms = processor_ms() - start;
  return result;
}

}  // namespace esm::train
