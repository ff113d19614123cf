// The golden models of tests/data/golden (see its README) as ours: weights loaded, sequences packed.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "data/batch.h"
#include "models/esm2.h"
#include "models/name_map.h"

namespace esm::test {

class Golden {
 public:
  /// "hf_d16" or "hf_d24".
  explicit Golden(const std::string& folder);

  models::Esm2 make_model(models::ModelOptions options, const Context& context = {}) const;

  /// Tensor of io.safetensors as FP64, in file order.
  std::vector<double> io(const std::string& name) const;
  /// Rows of a padded [B, S, ...] tensor that hold real tokens, one after the other, as the pack has them.
  std::vector<double> packed(const std::string& name) const;
  /// Gradients in our names and row order.
  std::vector<double> gradient(const std::string& native) const;

  models::Esm2Config config;
  data::Batch batch;
  std::vector<int64_t> lengths;  // tokens of each sequence
  int64_t padded_length = 0;     // S

 private:
  std::vector<double> native_tensor(const std::string& native, const checkpoint::SafetensorsFile& file,
                                    const std::string& prefix) const;

  checkpoint::SafetensorsFile io_, model_;
  models::ForeignLayout layout_;
};

}  // namespace esm::test
