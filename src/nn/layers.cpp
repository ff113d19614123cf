#include "nn/layers.h"

#include <algorithm>

#include "ops/layer_norm.h"
#include "ops/linear.h"
#include "ops/place.h"

namespace esm::nn {
namespace {

using precision::Grouping;

at::Tensor storage_gradient(const UnitStorage& storage, const std::string& name) {
  return storage.has(Role::kGrad) ? storage.view(Role::kGrad, name) : at::Tensor();
}

}  // namespace

void Linear::declare(std::vector<ParamSpec>& specs, const std::string& prefix, int64_t out, int64_t in,
                     double init_std) {
  specs.push_back({.name = prefix + ".weight", .shape = {out, in}, .kind = ParamKind::kMatrix, .init_std = init_std});
  specs.push_back({.name = prefix + ".bias", .shape = {out}, .kind = ParamKind::kBias});
}

Linear::Linear(const UnitStorage& storage, const std::string& prefix, const Products* products)
    : weight_(storage.view(Role::kCompute, prefix + ".weight")),
      bias_(storage.view(Role::kCompute, prefix + ".bias")),
      dweight_(storage_gradient(storage, prefix + ".weight")),
      dbias_(storage_gradient(storage, prefix + ".bias")) {
  if (products != nullptr) quantize(storage.context(), prefix, *products);
}

void Linear::quantize(const Context& context, const std::string& prefix, const Products& products) {
  const precision::Recipe& recipe = precision::find_recipe(products.precision);
  const int64_t out = weight_.size(0), in = weight_.size(1);
  formats_ = ops::as_supported(context, precision::resolve(recipe, out, in, products.tokens, products.capability),
                               {.tokens = products.tokens, .out = out, .in = in});
  if (!formats_.quantized()) return;
  scales_ = products.scales;
  counts_ = products.counts;
  const auto add = [&](const char* what, const precision::Operand& format) -> int64_t {
    if (format.grouping != Grouping::kTensor && format.grouping != Grouping::kNv16) return -1;
    return scales_->add(
        prefix + what,
        {.greatest = precision::greatest(format.format), .choice = products.amax_choice, .margin = products.margin},
        format.timing);
  };
  x_scale_ = add(".x", formats_.x);
  weight_scale_ = add(".weight", formats_.weight);
  if (dweight_.defined()) dy_scale_ = add(".dy", formats_.dy);
  x_count_ = counts_->add(prefix + ".x");
  weight_count_ = counts_->add(prefix + ".weight");
  if (dweight_.defined()) dy_count_ = counts_->add(prefix + ".dy");
  weight_codes_ = make_room(context, room(formats_.weight, out, in), dweight_.defined());
}

ops::GemmOperand Linear::operand(const precision::Operand& format, int64_t scale, const CodeBuffers& room,
                                 const at::Tensor& values, Codes codes) const {
  ops::GemmOperand x(values);
  if (!format.quantized()) return x;
  x.format = format;
  x.emulated = emulated();
  if (scale >= 0) x.scale = scales_->at(scale);
  const int64_t rows = values.size(0), cols = values.size(1);
  const auto cut = [&](const CodeBuffer& buffer, int64_t n, int64_t k, at::Tensor& bytes, at::Tensor& inverses) {
    if (x.emulated) {
      bytes = buffer.bytes.view(values.scalar_type()).narrow(0, 0, rows * cols).view({rows, cols});
      return;
    }
    const precision::OperandLayout layout = precision::layout(format, n, k);
    bytes = buffer.bytes.narrow(0, 0, n * layout.code_bytes).view({n, layout.code_bytes});
    if (format.grouping == Grouping::kTensor)
      inverses = x.scale.inverse;
    else
      inverses =
          (layout.scales_are_bytes ? buffer.inverses.view(at::kByte) : buffer.inverses).narrow(0, 0, layout.scales);
  };
  if (codes != Codes::kColumns) cut(room.by_rows, rows, cols, x.codes, x.inverses);
  if (codes != Codes::kRows) cut(room.by_columns, cols, rows, x.codes_t, x.inverses_t);
  return x;
}

ops::GemmOperand Linear::input(const ops::Pack& pack, const CodeBuffers& room, const at::Tensor& x, Codes codes) const {
  ops::GemmOperand result = operand(formats_.x, x_scale_, room, x, codes);
  result.counted = pack.counted;
  if (codes == Codes::kColumns) {  // amax is there, as kNv16 wants it, and not to be raised again
    result.scale.measure = false;
    if (result.format.grouping != Grouping::kNv16) result.scale.amax = at::Tensor();
  }
  return result;
}

ops::GemmOperand Linear::gradient(const ops::Pack& pack, const CodeBuffers& room, const at::Tensor& dy) const {
  ops::GemmOperand result = operand(formats_.dy, dy_scale_, room, dy, Codes::kBoth);
  result.counted = pack.counted;
  return result;
}

ops::GemmOperand Linear::weight() const {
  return operand(formats_.weight, weight_scale_, weight_codes_, weight_,
                 dweight_.defined() ? Codes::kBoth : Codes::kRows);
}

void Linear::quantize_weight(ops::Workspace& ws) const {
  if (!formats_.quantized()) return;
  const ops::GemmOperand w = weight();
  ops::quantize_operand(ws, w);
  counts_->count(w, weight_count_);
}

void Linear::forward(ops::Workspace& ws, const ops::GemmOperand& x, const at::Tensor& y,
                     const at::Tensor& residual) const {
  if (formats_.quantized()) counts_->count(x, x_count_);
  ops::linear(ws, {.x = x,
                   .weight = weight(),
                   .bias = bias_,
                   .residual = residual,
                   .y = y,
                   .fast_accumulation = formats_.forward.fast_accumulation});
}

void Linear::dgrad(ops::Workspace& ws, const ops::GemmOperand& dy, const at::Tensor& dx) const {
  if (formats_.quantized()) counts_->count(dy, dy_count_);
  ops::linear_dgrad(ws,
                    {.dy = dy, .weight = weight(), .dx = dx, .fast_accumulation = formats_.dgrad.fast_accumulation});
}

void Linear::wgrad(ops::Workspace& ws, const ops::GemmOperand& dy, const ops::GemmOperand& x,
                   WeightGradient mode) const {
  ops::linear_wgrad(ws, {.dy = dy,
                         .x = x,
                         .dweight = dweight_,
                         .accumulate = mode == WeightGradient::kAdd,
                         .fast_accumulation = formats_.wgrad.fast_accumulation});
}

void Linear::Room::include(const Room& other) {
  bytes = std::max(bytes, other.bytes);
  inverses = std::max(inverses, other.inverses);
}

Linear::Room Linear::room(const precision::Operand& format, int64_t rows, int64_t cols) const {
  if (!format.quantized()) return {};
  if (emulated()) return {.bytes = rows * cols * static_cast<int64_t>(weight_.element_size())};
  if (format.grouping == Grouping::kTensor) return {.bytes = rows * cols};
  const precision::OperandLayout by_rows = precision::layout(format, rows, cols),
                                 by_columns = precision::layout(format, cols, rows);
  const int64_t scales = std::max(by_rows.scales, by_columns.scales);
  return {.bytes = std::max(rows * by_rows.code_bytes, cols * by_columns.code_bytes),
          .inverses = by_rows.scales_are_bytes ? (scales + 3) / 4 : scales};
}

Linear::Room Linear::input_room(int64_t tokens) const { return room(formats_.x, tokens, weight_.size(1)); }
Linear::Room Linear::gradient_room(int64_t tokens) const { return room(formats_.dy, tokens, weight_.size(0)); }

CodeBuffers Linear::make_room(const Context& context, const Room& room, bool by_columns) {
  const auto make = [&] {
    CodeBuffer buffer{.bytes = at::empty({room.bytes}, ops::options(context, at::kByte))};
    if (room.inverses > 0) buffer.inverses = at::empty({room.inverses}, ops::options(context, at::kFloat));
    return buffer;
  };
  if (room.bytes == 0) return {};
  return {make(), by_columns ? make() : CodeBuffer{}};
}

void Linear::each_buffer(const std::function<void(const at::Tensor&)>& body) const {
  for (const CodeBuffer* buffer : {&weight_codes_.by_rows, &weight_codes_.by_columns}) {
    body(buffer->bytes);
    body(buffer->inverses);
  }
}

void Linear::expect(ops::Workspace& ws, int64_t tokens) const {
  ops::expect_linear(ws, {.tokens = tokens,
                          .out = weight_.size(0),
                          .in = weight_.size(1),
                          .type = weight_.scalar_type(),
                          .training = dweight_.defined()});
  const auto expect_codes = [&](const precision::Operand& format, int64_t rows, int64_t cols) {
    ops::expect_quantize_operand(ws, {.rows = rows, .cols = cols, .format = format, .emulated = emulated()});
  };
  expect_codes(formats_.x, tokens, weight_.size(1));
  expect_codes(formats_.weight, weight_.size(0), weight_.size(1));
  if (dweight_.defined()) expect_codes(formats_.dy, tokens, weight_.size(0));
}

void LayerNorm::declare(std::vector<ParamSpec>& specs, const std::string& prefix, int64_t size) {
  specs.push_back({.name = prefix + ".weight", .shape = {size}, .kind = ParamKind::kNormWeight});
  specs.push_back({.name = prefix + ".bias", .shape = {size}, .kind = ParamKind::kNormBias});
}

LayerNorm::LayerNorm(const UnitStorage& storage, const std::string& prefix, double eps)
    : weight_(storage.view(Role::kCompute, prefix + ".weight")),
      bias_(storage.view(Role::kCompute, prefix + ".bias")),
      dweight_(storage_gradient(storage, prefix + ".weight")),
      dbias_(storage_gradient(storage, prefix + ".bias")),
      eps_(eps) {}

void LayerNorm::forward(ops::Workspace& ws, const at::Tensor& x, const ops::GemmOperand& y,
                        const NormStats& stats) const {
  ops::layer_norm(
      ws, {.x = x, .weight = weight_, .bias = bias_, .y = y, .mean = stats.mean, .rstd = stats.rstd, .eps = eps_});
}

void LayerNorm::backward(ops::Workspace& ws, const Backward& a) const {
  ops::layer_norm_backward(ws, {.x = a.x,
                                .weight = weight_,
                                .bias = bias_,
                                .mean = a.stats.mean,
                                .rstd = a.stats.rstd,
                                .dy = a.dy,
                                .dx = a.dx,
                                .y = a.y,
                                .dweight = dweight_,
                                .dbias = dbias_,
                                .dx_sum = a.dx_sum,
                                .accumulate = a.accumulate});
}

void LayerNorm::expect(ops::Workspace& ws, int64_t rows) const {
  if (dweight_.defined()) ops::expect_layer_norm_backward(ws, rows, weight_.numel());
}

}  // namespace esm::nn
