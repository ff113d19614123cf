// facebookresearch/esm (fair-esm) `ESM2`: names of its .pt files.
#pragma once
#include <string>
#include <string_view>

#include "models/esm2_config.h"
#include "models/name_map.h"

namespace esm::models {

/// Names as in ESM2.state_dict(): embed_tokens.weight, layers.N.self_attn.q_proj.weight, ...
ForeignLayout fair_esm_layout(const Esm2Config& config);

/// Published files and those of fairseq carry prefixes (`encoder.sentence_encoder.layers...`, `encoder.lm_head...`,
/// `sentence_encoder...`), which fair-esm takes off too.
std::string fair_esm_canonical_name(std::string_view name);

/// Rotary inv_freq of each layer; the `version` that fairseq stores.
bool fair_esm_is_passed_through(std::string_view name);

}  // namespace esm::models
