#include "nn/layers.h"

#include "ops/layer_norm.h"
#include "ops/linear.h"

namespace esm::nn {
namespace {

at::Tensor gradient(const UnitStorage& storage, const std::string& name) {
  return storage.has(Role::kGrad) ? storage.view(Role::kGrad, name) : at::Tensor();
}

}  // namespace

void Linear::declare(std::vector<ParamSpec>& specs, const std::string& prefix, int64_t out, int64_t in,
                     double init_std) {
  specs.push_back({.name = prefix + ".weight", .shape = {out, in}, .kind = ParamKind::kMatrix, .init_std = init_std});
  specs.push_back({.name = prefix + ".bias", .shape = {out}, .kind = ParamKind::kBias});
}

Linear::Linear(const UnitStorage& storage, const std::string& prefix)
    : weight_(storage.view(Role::kCompute, prefix + ".weight")),
      bias_(storage.view(Role::kCompute, prefix + ".bias")),
      dweight_(gradient(storage, prefix + ".weight")),
      dbias_(gradient(storage, prefix + ".bias")) {}

void Linear::forward(ops::Workspace& ws, const at::Tensor& x, const at::Tensor& y, const at::Tensor& residual) const {
  ops::linear(ws, {.x = x, .weight = weight_, .bias = bias_, .residual = residual, .y = y});
}

void Linear::dgrad(ops::Workspace& ws, const at::Tensor& dy, const at::Tensor& dx) const {
  ops::linear_dgrad(ws, {.dy = dy, .weight = weight_, .dx = dx});
}

void Linear::wgrad(ops::Workspace& ws, const at::Tensor& dy, const at::Tensor& x, WeightGradient mode) const {
  ops::linear_wgrad(ws, {.dy = dy, .x = x, .dweight = dweight_, .accumulate = mode == WeightGradient::kAdd});
}

void Linear::expect(ops::Workspace& ws, int64_t tokens) const {
  ops::expect_linear(ws, {.tokens = tokens,
                          .out = weight_.size(0),
                          .in = weight_.size(1),
                          .type = weight_.scalar_type(),
                          .training = dweight_.defined()});
}

void LayerNorm::declare(std::vector<ParamSpec>& specs, const std::string& prefix, int64_t size) {
  specs.push_back({.name = prefix + ".weight", .shape = {size}, .kind = ParamKind::kNormWeight});
  specs.push_back({.name = prefix + ".bias", .shape = {size}, .kind = ParamKind::kNormBias});
}

LayerNorm::LayerNorm(const UnitStorage& storage, const std::string& prefix, double eps)
    : weight_(storage.view(Role::kCompute, prefix + ".weight")),
      bias_(storage.view(Role::kCompute, prefix + ".bias")),
      dweight_(gradient(storage, prefix + ".weight")),
      dbias_(gradient(storage, prefix + ".bias")),
      eps_(eps) {}

void LayerNorm::forward(const Context& context, const at::Tensor& x, const at::Tensor& y,
                        const NormStats& stats) const {
  ops::layer_norm(
      context, {.x = x, .weight = weight_, .bias = bias_, .y = y, .mean = stats.mean, .rstd = stats.rstd, .eps = eps_});
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
