// ESM-2 (Lin et al. 2022): a pre-LayerNorm encoder with rotary positions over packed sequences, and its masked-language
// head. Exact mathematics: README.md of this folder.
#pragma once
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "models/contacts.h"
#include "models/esm2_config.h"
#include "models/model.h"
#include "nn/encoder_layer.h"

namespace esm::models {

/// What forward() shall return.
struct Want {
  bool logits = false;
  bool hidden_states = false;
  bool contacts = false;
  bool embeddings = false;
};

struct Outputs {
  at::Tensor logits_TV;               // [T, 33] FP32; rows of dummy segments mean nothing
  std::vector<at::Tensor> hidden_TD;  // layers + 1 of [T, hidden] FP32: 0 scaled embeddings, i after layer i, the last
                                      // after the final LayerNorm
  at::Tensor embeddings_TD;           // the last of these alone
  /// Per segment (dummies: undefined) [n - 2, n - 2] FP32 contact probabilities of a row <cls> residues <eos>.
  std::vector<at::Tensor> contacts;
};

class Esm2 final : public Model {
 public:
  /// Throws ConfigError for a shape that cannot be, DeviceError when there are no kernels for context.device.
  Esm2(const Context& context, const Esm2Config& config, const ModelOptions& options);
  ~Esm2() override;
  Esm2(Esm2&& other) noexcept;

  const Esm2Config& config() const;
  const ModelOptions& options() const;

  std::span<nn::UnitStorage* const> units() override;
  void accumulate(const data::Batch& batch) override;
  const at::Tensor& loss_sums() const override;
  void begin_step() override;
  void end_step() override;
  ops::Scales* scales() override;
  void watch(bool on) override;
  const std::vector<std::string>& watched() const override;
  at::Tensor observation() override;
  LossSums evaluate(const data::Batch& batch) override;
  std::vector<ops::MemoryPart> memory() const override;

  /// What the linear layers work in, for the log.
  std::vector<precision::PlannedLinear> products() const;

  /// For parity tests and prediction; allocates what it returns. Contacts need a contact head (else ConfigError) and
  /// use exact attention probabilities on a slower path.
  Outputs forward(const data::Batch& batch, Want want);

  /// Rotary inverse frequencies in use, [head_dim / 2].
  const std::vector<float>& inv_freq() const;
  const std::optional<ContactHead>& contact_head() const;
  void set_contact_head(ContactHead head);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace esm::models
