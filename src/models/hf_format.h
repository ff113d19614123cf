// Hugging Face `EsmForMaskedLM` (facebook/esm2_*): names, config.json, tokenizer files.
#pragma once
#include <map>
#include <string>
#include <string_view>

#include "models/esm2_config.h"
#include "models/name_map.h"

namespace esm::models {

ForeignLayout hf_layout(const Esm2Config& config);

/// `...LayerNorm.gamma` and `.beta`, which some versions of transformers write, become `weight` and `bias`.
std::string hf_canonical_name(std::string_view name);

/// Tensors that occur in such files and that a rotary masked language model does not use: position embeddings and ids,
/// rotary inv_freq (per layer, or once under a literal `layer.*`), the pooler.
bool hf_is_passed_through(std::string_view name);

/// Reads a config.json. inv_freq is left at its default, the tensors decide. Throws CheckpointError for what is not
/// ESM-2 or not supported (another vocabulary, learned positions, an embedding LayerNorm, ...), naming the key.
Esm2Config hf_read_config(const std::string& json_text, const std::string& where);

/// What config.json says of weights of 8 bits: nothing, what `source` says (else as the last), or that the matrices of
/// the encoder layers are E4M3 codes with an FP32 factor each: compressed-tensors, format "float-quantized".
enum class Quantization { kNone, kAsInSource, kLayerMatrices };

/// A config.json that transformers loads. dtype: "F32", "F16" or "BF16", of the weights that are no codes. `source`:
/// the config.json that the weights came with, whose other keys are kept, or "".
std::string hf_write_config(const Esm2Config& config, std::string_view dtype, Quantization quantization,
                            const std::string& source);

/// vocab.txt, tokenizer_config.json, special_tokens_map.json: file name -> content.
std::map<std::string, std::string> hf_tokenizer_files();

}  // namespace esm::models
