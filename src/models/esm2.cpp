#include "models/esm2.h"

#include <algorithm>

#include "base/check.h"
#include "base/narrow.h"
#include "models/batch_stage.h"
#include "nn/encoder_layer.h"
#include "nn/lm_head.h"
#include "nn/token_embedding.h"
#include "ops/cast.h"
#include "ops/linear.h"
#include "ops/place.h"
#include "ops/replay.h"

// T packed tokens, D hidden, F ffn, H heads, V vocabulary; x_[l] is the input of layer l.

namespace esm::models {
namespace {

at::ScalarType activation_type(precision::Precision precision) {
  return precision::find_recipe(precision).compute == DType::kF32 ? at::kFloat : at::kBFloat16;
}

ops::Gelu gelu_form(Activation activation) {
  switch (activation) {
    case Activation::kGeluErf: return ops::Gelu::kErf;
    case Activation::kGeluTanh: return ops::Gelu::kTanh;
  }
  fail<InternalError>("no such activation");
}

std::vector<float> choose_inv_freq(const Esm2Config& config, const ModelOptions& options) {
  std::vector<float> result = ops::rotary_inv_freq(config.head_dim());
  switch (config.inv_freq) {
    case InvFreq::kFp32: return result;
    case InvFreq::kFp16Rounded:
      for (float& value : result) value = static_cast<float>(at::Half(value));
      return result;
    case InvFreq::kFile:
      if (options.inv_freq.empty())
        fail<ConfigError>(
            "model.inv_freq is 'file', but there is no imported checkpoint that carries inv_freq; use "
            "'fp32' (or 'fp16_rounded' for released ESM-2 weights)");
      if (options.inv_freq.size() != result.size())
        fail<ConfigError>("model.inv_freq: the imported checkpoint has {} values, head_dim {} needs {}",
                          options.inv_freq.size(), config.head_dim(), result.size());
      return options.inv_freq;
  }
  fail<InternalError>("no such inv_freq");
}

nn::EncoderLayerShape layer_shape(const Esm2Config& config) {
  return {.hidden = config.hidden,
          .heads = config.heads,
          .ffn = config.ffn_size(),
          .activation = gelu_form(config.activation),
          .layer_norm_eps = config.layer_norm_eps,
          .init_std = config.init_std};
}

/// Rows of the decoder in GEMMs: on a CUDA device 33 rows would find slow kernels only.
int64_t padded_vocabulary(const Context& context) { return context.on_cuda() ? 64 : kVocabSize; }

nn::TokenEmbedding::Shape embedding_shape(const Context& context, const Esm2Config& config) {
  return {.vocabulary = kVocabSize,
          .hidden = config.hidden,
          .padded_vocabulary = padded_vocabulary(context),
          .token_dropout = config.token_dropout,
          .init_std = config.init_std};
}

nn::LmHead::Shape head_shape(const Context& context, const Esm2Config& config) {
  return {.vocabulary = kVocabSize,
          .hidden = config.hidden,
          .padded_vocabulary = padded_vocabulary(context),
          .layer_norm_eps = config.layer_norm_eps,
          .init_std = config.init_std};
}

void check_config(const Context& context, const Esm2Config& config, const ModelOptions& options) {
  config::Problems problems;
  config.cross_check(problems);
  for (const auto& [key, problem] : problems.items) fail<ConfigError>("model.{}: {}", key, problem);
  ESM_CHECK(options.tokens_per_batch > 0 && options.max_tokens >= 0 && options.max_tokens <= options.tokens_per_batch,
            "{} tokens a batch, {} a sequence", options.tokens_per_batch, options.max_tokens);
  constexpr int64_t kVector = 8;  // elements that a kernel moves at once
  if (context.on_cuda() &&
      (config.head_dim() % kVector != 0 || config.ffn_size() % kVector != 0 || options.tokens_per_batch % kVector != 0))
    fail<ConfigError>(
        "on a CUDA device model.hidden / model.heads ({}), the feed-forward size ({}) and data.tokens_per_batch ({}) "
        "must be multiples of {}; other sizes run with device: cpu",
        config.head_dim(), config.ffn_size(), options.tokens_per_batch, kVector);
}

at::Tensor to_float(const Context& context, const at::Tensor& x) {
  at::Tensor result = at::empty(x.sizes(), ops::options(context, at::kFloat));
  if (x.scalar_type() == at::kFloat)
    result.copy_(x);
  else
    ops::cast(context, x, result);
  return result;
}

}  // namespace

struct Esm2::Impl {
  Impl(const Context& context, const Esm2Config& config_, const ModelOptions& options_);

  void add_unit(const Context& context, std::string name, std::vector<nn::ParamSpec> specs) {
    storages.push_back(std::make_unique<nn::UnitStorage>(context, std::move(name), std::move(specs), options.precision,
                                                         options.training, options.formats));
    units.push_back(storages.back().get());
  }
  const nn::UnitStorage& layer_storage(int64_t layer) const { return *storages[layer + 1]; }

  /// Where layers share buffers of what is computed again with `least` or more; without training all do.
  nn::LayerBuffers buffers(nn::Recompute least) const {
    if (!options.training) return {.layers = config.layers, .sharing = config.layers};
    const int64_t again = options.recompute_layers > 0 ? options.recompute_layers : config.layers;
    return {.layers = config.layers, .sharing = options.recompute < least ? 0 : again};
  }
  at::Tensor x(int64_t layer, int64_t tokens) const {
    return x_buffers[layer % static_cast<int64_t>(x_buffers.size())].narrow(0, 0, tokens);
  }
  nn::EncoderLayerSaved saved(int64_t layer, int64_t tokens) const {
    nn::EncoderLayerSaved result = saved_buffers[buffers(nn::Recompute::kFull).of(layer)].narrow(tokens);
    result.x_TD = x(layer, tokens);
    result.h_TF = h_buffers[buffers(nn::Recompute::kSelective).of(layer)].narrow(0, 0, tokens);
    return result;
  }

  ops::AttentionSetup attention_setup() const {
    return {.heads = config.heads,
            .head_dim = config.head_dim(),
            .dtype = activation_type(options.precision),
            .kind = options.attention,
            .deterministic = options.deterministic};
  }
  precision::Precision recipe_of(int64_t layer) const {
    return options.layer_precision.empty() ? options.precision : options.layer_precision.at(static_cast<size_t>(layer));
  }
  int64_t max_seqlen() const { return options.max_tokens > 0 ? options.max_tokens : options.tokens_per_batch; }
  void expect_operations();

  /// Embedding and all layers; fills `factors`. After layer l `seen(l, saved)` is called.
  template <class Seen>
  void encode(const ops::Pack& pack, const Seen& seen) {
    ops::begin_attention(ws, pack, attention_setup());
    embedding->forward(ws.context(), pack, factors.narrow(0, 0, pack.tokens), x(0, pack.tokens));
    const nn::EncoderScratch some = scratch.narrow(pack.tokens);
    for (int64_t l = 0; l < config.layers; ++l) {
      const nn::EncoderLayerSaved kept = saved(l, pack.tokens);
      layers[l].forward(ws, pack, rotary, some, kept, x(l + 1, pack.tokens));
      seen(l, kept);
    }
  }
  void encode(const ops::Pack& pack) {
    encode(pack, [](int64_t, const nn::EncoderLayerSaved&) {});
  }

  /// Units whose matrices get their gradients from one product each.
  bool replaces(const nn::UnitStorage& unit) const { return &unit != units.front() && &unit != units.back(); }

  /// Scales as they are; leaves no trace in histories.
  void begin_evaluation() {
    scales.begin_micro_batch(ops::Scales::Pass::kEvaluation);
    quantize_weights();
  }

  void quantize_weights() {
    for (const nn::EncoderLayer& layer : layers) layer.quantize_weights(ws);
  }

  /// Adds to `sums` and to the gradients; `weights`: of the layers' matrices.
  void forward_backward(const StagedBatch& batch, nn::WeightGradient weights) {
    const ops::Pack& pack = batch.pack;
    scales.begin_micro_batch(ops::Scales::Pass::kTraining);
    if (weights_changed) quantize_weights();
    encode(pack);
    const at::Tensor dx = dx_buffer.narrow(0, 0, pack.tokens);
    dx.zero_();
    head->loss_and_gradient(ws, x(config.layers, pack.tokens), batch.scored, options.label_smoothing, sums, dx);
    ops::add_column_sums(ws, dx, layers.back().output_bias_gradient());
    const nn::EncoderScratch some = scratch.narrow(pack.tokens);
    ops::quantize_operand(ws, layers.back().output_gradient(pack, some, dx));
    for (int64_t l = config.layers - 1; l >= 0; --l) {
      const nn::EncoderLayerSaved kept = saved(l, pack.tokens);
      if (!buffers(nn::Recompute::kSelective).lasts(l))
        layers[l].restore(ws, pack, rotary, some, kept, options.recompute);
      layers[l].backward(ws, pack, rotary, some, kept, dx, l > 0 ? &layers[l - 1] : nullptr, weights);
    }
    embedding->backward(ws, pack, factors.narrow(0, 0, pack.tokens), dx);
    scales.end_micro_batch();
  }

  Esm2Config config;
  ModelOptions options;
  ops::Workspace ws;
  std::vector<float> inv_freq;
  ops::RotaryTable rotary;
  std::vector<std::unique_ptr<nn::UnitStorage>> storages;
  std::vector<nn::UnitStorage*> units;
  std::optional<nn::TokenEmbedding> embedding;
  std::vector<nn::EncoderLayer> layers;
  std::optional<nn::LmHead> head;
  std::optional<ContactHead> contact_head;
  std::optional<BatchStage> stage;

  std::vector<at::Tensor> x_buffers;                 // training: layers + 1, else 2 in turn
  std::vector<nn::EncoderLayerSaved> saved_buffers;  // see buffers()
  std::vector<at::Tensor> h_buffers;                 // before the GELU
  nn::EncoderScratch scratch;
  at::Tensor dx_buffer;
  at::Tensor factors;  // of the embedding's rows
  at::Tensor sums;     // ops::make_loss_sums(), since begin_step()
  bool fresh = false;  // no batch since begin_step()
  ops::Scales scales;
  ops::CodeCounts counts;
  at::Tensor counted;           // rows of the last batch that count
  bool accumulated = false;     // a batch since begin_step()
  bool weights_changed = true;  // since their codes were made for a step
  ops::Replay replay;           // of accumulate()
  int64_t replay_generation = 0;
};

Esm2::Impl::Impl(const Context& context, const Esm2Config& config_, const ModelOptions& options_)
    : config(config_),
      options(options_),
      ws(context),
      inv_freq(choose_inv_freq(config_, options_)),
      rotary(ops::rotary_table(context, options_.tokens_per_batch, inv_freq)),
      scales(context, options_.delay.history_steps),
      counts(context),
      replay(context, options_.graphs) {
  const nn::EncoderLayerShape shape = layer_shape(config);
  add_unit(context, "embedding", nn::TokenEmbedding::declare(embedding_shape(context, config)));
  for (int64_t l = 0; l < config.layers; ++l)
    add_unit(context, fmt::format("layers.{}", l), nn::EncoderLayer::declare(shape, l));
  add_unit(context, "head", nn::LmHead::declare(head_shape(context, config)));

  const int64_t tokens = options.tokens_per_batch;
  const at::ScalarType dtype = activation_type(options.precision);
  const at::TensorOptions own = ops::options(context, dtype);
  embedding.emplace(*storages.front(), embedding_shape(context, config));
  for (int64_t l = 0; l < config.layers; ++l)
    layers.emplace_back(layer_storage(l), shape, l,
                        nn::Products{.precision = recipe_of(l),
                                     .scales = &scales,
                                     .counts = &counts,
                                     .amax_choice = options.delay.choice,
                                     .margin = options.delay.margin,
                                     .tokens = tokens,
                                     .capability = context.compute_capability});
  scales.allocate();
  counts.allocate();
  head.emplace(context, *storages.back(), *storages.front(), head_shape(context, config), head_chunk_rows(tokens),
               dtype);

  const int64_t inputs = options.training ? config.layers + 1 : 2;
  for (int64_t i = 0; i < inputs; ++i) x_buffers.push_back(at::empty({tokens, config.hidden}, own));
  for (int64_t i = 0; i < buffers(nn::Recompute::kFull).count(); ++i)
    saved_buffers.push_back(nn::EncoderLayerSaved::allocate(context, shape, tokens, dtype));
  for (int64_t i = 0; i < buffers(nn::Recompute::kSelective).count(); ++i)
    h_buffers.push_back(nn::EncoderLayerSaved::allocate_h(context, shape, tokens, dtype));
  scratch = nn::EncoderLayer::allocate_scratch(context, layers, tokens, dtype, options.training);
  if (options.training) dx_buffer = at::empty({tokens, config.hidden}, own);
  factors = at::empty({tokens}, ops::options(context, at::kFloat));
  sums = ops::make_loss_sums(context);
  stage.emplace(
      context,
      BatchStage::Limits{
          .tokens = tokens, .max_seqlen = max_seqlen(), .vocabulary = kVocabSize, .chunk_rows = head->chunk_rows()});
  expect_operations();
}

void Esm2::Impl::expect_operations() {
  const int64_t tokens = options.tokens_per_batch;
  embedding->expect(ws, tokens);
  for (const nn::EncoderLayer& layer : layers) layer.expect(ws, tokens);
  head->expect(ws);
  ops::expect_attention(ws,
                        {.tokens = tokens,
                         .heads = config.heads,
                         .head_dim = config.head_dim(),
                         .capacity = expected_segments(ws.context(), tokens, max_seqlen()),
                         .max_seqlen = max_seqlen(),
                         .deterministic = options.deterministic},
                        attention_setup());
  ws.allocate();
}

Esm2::Esm2(const Context& context, const Esm2Config& config, const ModelOptions& options) {
  check_config(context, config, options);
  impl_ = std::make_unique<Impl>(context, config, options);
}

Esm2::~Esm2() = default;
Esm2::Esm2(Esm2&& other) noexcept = default;

const Esm2Config& Esm2::config() const { return impl_->config; }
const ModelOptions& Esm2::options() const { return impl_->options; }
std::span<nn::UnitStorage* const> Esm2::units() { return impl_->units; }
const std::vector<float>& Esm2::inv_freq() const { return impl_->inv_freq; }
const std::optional<ContactHead>& Esm2::contact_head() const { return impl_->contact_head; }

void Esm2::set_contact_head(ContactHead head) {
  const int64_t maps = impl_->config.layers * impl_->config.heads;
  ESM_CHECK(head.weight.numel() == maps && head.bias.numel() == 1, "a contact head of {} weights for {} maps",
            head.weight.numel(), maps);
  impl_->contact_head = std::move(head);
}

void Esm2::accumulate(const data::Batch& batch) {
  ESM_CHECK(impl_->options.training, "this model was made without gradients");
  Impl& m = *impl_;
  if (batch.n_scored() == 0) {
    if (m.fresh) zero_grad();
    m.fresh = false;
    return;
  }
  const StagedBatch staged = m.stage->stage(batch);
  if (m.replay_generation != m.ws.generation()) m.replay.clear();
  m.replay_generation = m.ws.generation();
  ops::Replay::Key key = staged.shape();
  for (const bool flag : {m.fresh, m.weights_changed, m.scales.measuring(), m.counts.watching()})
    key.push_back(flag ? 1 : 0);
  m.replay.run(key,
               [&] { m.forward_backward(staged, m.fresh ? nn::WeightGradient::kReplace : nn::WeightGradient::kAdd); });
  m.fresh = false;
  m.weights_changed = false;
  m.accumulated = true;
  m.counted = staged.pack.counted;
}

ops::Scales* Esm2::scales() { return impl_->scales.size() > 0 ? &impl_->scales : nullptr; }

void Esm2::watch(bool on) { impl_->counts.watch(on); }

const std::vector<std::string>& Esm2::watched() const { return impl_->counts.names(); }

at::Tensor Esm2::observation() {
  const Impl& m = *impl_;
  std::vector<at::Tensor> parts;
  if (m.scales.size() > 0) parts = {m.scales.pending().to(at::kDouble), m.scales.scale().to(at::kDouble)};
  parts.push_back(m.counts.counts().to(at::kDouble).view({-1}));
  const at::Tensor rows = m.counted.defined() ? m.counted : at::zeros({1}, ops::options(m.ws.context(), at::kInt));
  for (int64_t l = 0; l < m.config.layers; ++l) {
    const at::Tensor out = m.x(l + 1, m.options.tokens_per_batch);
    parts.push_back(ops::moments(m.ws.context(), out, rows));
    parts.push_back(m.layer_storage(l).flat(nn::Role::kGrad).norm().to(at::kDouble).view({1}));
  }
  parts.push_back(rows.to(at::kDouble).mul(m.config.hidden));
  int64_t size = 0, at = 0;
  for (const at::Tensor& part : parts) size += part.numel();
  const at::Tensor all = at::empty({size}, ops::options(m.ws.context(), at::kDouble));
  for (const at::Tensor& part : parts) {
    all.narrow(0, at, part.numel()).copy_(part);
    at += part.numel();
  }
  return all;
}

void Esm2::end_step() {
  if (impl_->accumulated) impl_->scales.close_step();
}

const at::Tensor& Esm2::loss_sums() const { return impl_->sums; }

void Esm2::begin_step() {
  Impl& m = *impl_;
  for (nn::UnitStorage* unit : m.units)
    unit->zero_grad(m.replaces(*unit) ? nn::ZeroGrad::kVectors : nn::ZeroGrad::kAll);
  m.sums.zero_();
  m.scales.begin_step();
  m.fresh = true;
  m.accumulated = false;
  m.weights_changed = true;
}

LossSums Esm2::evaluate(const data::Batch& batch) {
  if (batch.n_scored() == 0) return {};
  Impl& m = *impl_;
  const auto [pack, scored] = m.stage->stage(batch);
  m.begin_evaluation();
  m.encode(pack);
  const at::Tensor own = ops::make_loss_sums(m.ws.context());
  m.head->loss(m.ws, m.x(m.config.layers, pack.tokens), scored, own);
  const ops::LossSums sums = ops::read_loss_sums(own);
  return {.loss_sum = sums.loss, .n_scored = sums.scored, .n_correct = sums.correct};
}

Outputs Esm2::forward(const data::Batch& batch, Want want) {
  Impl& m = *impl_;
  if (want.contacts && !m.contact_head)
    fail<ConfigError>("contacts need a contact head, which comes with an imported checkpoint; this model has none");
  const ops::Pack pack = m.stage->stage(batch).pack;
  m.begin_evaluation();
  Outputs out;
  std::optional<ContactMaps> contacts;
  if (want.contacts) contacts.emplace(batch, *m.contact_head, m.config.heads);
  m.encode(pack, [&](int64_t layer, const nn::EncoderLayerSaved& saved) {
    if (want.hidden_states) out.hidden_TD.push_back(to_float(m.ws.context(), saved.x_TD));
    if (contacts) contacts->add_layer(layer, saved.qkv_T3D);
  });
  const at::Tensor last = m.x(m.config.layers, pack.tokens);
  if (want.hidden_states || want.embeddings) {
    const at::Tensor y = at::empty(last.sizes(), last.options());
    m.head->final_norm(m.ws, last, y);
    out.embeddings_TD = y.scalar_type() == at::kFloat ? y : to_float(m.ws.context(), y);
    if (want.hidden_states) out.hidden_TD.push_back(out.embeddings_TD);
  }
  if (want.logits) {
    out.logits_TV = at::empty({pack.tokens, kVocabSize}, ops::options(m.ws.context(), at::kFloat));
    m.head->logits(m.ws, last, out.logits_TV);
  }
  if (contacts) out.contacts = contacts->probabilities();
  return out;
}

std::vector<precision::PlannedLinear> Esm2::products() const {
  const Impl& m = *impl_;
  std::vector<precision::PlannedLinear> result;
  for (int64_t l = 0; l < m.config.layers; ++l)
    for (precision::PlannedLinear& linear : m.layers[static_cast<size_t>(l)].products(m.recipe_of(l))) {
      linear.layer = l + 1;
      result.push_back(std::move(linear));
    }
  result.push_back(m.head->products());
  return result;
}

std::vector<ops::MemoryPart> Esm2::memory() const {
  const Impl& m = *impl_;
  ops::MemoryPart inputs{.name = "layer inputs"}, qkv{.name = "queries, keys, values"},
      attended{.name = "attention outputs"}, middle{.name = "between attention and feed-forward"},
      h{.name = "feed-forward, before the GELU"}, statistics{.name = "row statistics"},
      shared{.name = "shared by all layers"}, rotary{.name = "rotary table"};
  for (const at::Tensor& x : m.x_buffers) inputs.add(x);
  for (const nn::EncoderLayerSaved& saved : m.saved_buffers) {
    qkv.add(saved.qkv_T3D);
    attended.add(saved.o_TD);
    middle.add(saved.x1_TD);
    for (const at::Tensor& x : {saved.lse_HT, saved.norm1.mean, saved.norm1.rstd, saved.norm2.mean, saved.norm2.rstd})
      statistics.add(x);
  }
  for (const at::Tensor& x : m.h_buffers) h.add(x);
  for (const at::Tensor& x : {m.scratch.norm_TD, m.scratch.wide_TF, m.dx_buffer, m.factors}) shared.add(x);
  if (!m.scratch.act_TF.is_alias_of(m.scratch.wide_TF)) shared.add(m.scratch.act_TF);
  for (const nn::CodeBuffers* codes :
       {&m.scratch.input_TD, &m.scratch.input_TF, &m.scratch.gradient_wide, &m.scratch.gradient_TD})
    for (const nn::CodeBuffer* buffer : {&codes->by_rows, &codes->by_columns})
      shared.add(buffer->bytes).add(buffer->inverses);
  ops::MemoryPart weight_codes{.name = "codes of weights"};
  for (const nn::EncoderLayer& layer : m.layers)
    for (const auto& [name, linear] : layer.linears())
      linear->each_buffer([&](const at::Tensor& x) { weight_codes.add(x); });
  rotary.add(m.rotary.cos).add(m.rotary.sin);
  ops::MemoryPart attention = m.ws.attention_memory();
  if (m.options.graphs) attention.bytes += m.ws.attention_library_bytes;  // a graph has a pool of its own
  return {inputs,           qkv,    attended,          middle,        h,         statistics,   shared,
          m.head->memory(), rotary, m.stage->memory(), m.ws.memory(), attention, weight_codes, m.scales.memory()};
}

}  // namespace esm::models
