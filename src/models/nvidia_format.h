// NVIDIA TransformerEngine `NVEsmForMaskedLM` (nvidia/esm2_*), both generations of names.
#pragma once
#include <string>
#include <string_view>

#include "models/esm2_config.h"
#include "models/name_map.h"

namespace esm::models {

/// kNew: prefix `model.`, 33 rows. kOld: prefix `esm.`, vocabulary padded to 64 rows. Files mix them, so prefix and
/// rows are told apart.
struct NvidiaVariant {
  std::string prefix = "model";
  int64_t vocab_rows = kVocabSize;
  bool interleaved_qkv = true;  // rows per head; config.json's qkv_weight_interleaved

  static NvidiaVariant new_names() { return {}; }
  static NvidiaVariant old_names() { return {.prefix = "esm", .vocab_rows = 64, .interleaved_qkv = true}; }
};

ForeignLayout nvidia_layout(const Esm2Config& config, const NvidiaVariant& variant);

std::string nvidia_canonical_name(std::string_view name);

/// `_extra_state` blobs, rotary inv_freq, position embeddings, the pooler.
bool nvidia_is_passed_through(std::string_view name);

struct NvidiaConfig {
  Esm2Config model;
  bool interleaved_qkv = true;
};

/// Reads a config.json; as hf_read_config(). TransformerEngine's "gelu" is the tanh form.
NvidiaConfig nvidia_read_config(const std::string& json_text, const std::string& where);

/// `source`: as for hf_write_config(). keep_quantization: whether its quantization_config is still true.
std::string nvidia_write_config(const Esm2Config& config, const NvidiaVariant& variant, std::string_view dtype,
                                bool keep_quantization, const std::string& source);

}  // namespace esm::models
