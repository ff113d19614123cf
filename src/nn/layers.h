// The two parts every unit is made of: a linear map and a LayerNorm, as views into a unit's storage.
#pragma once
#include <string>

#include "nn/storage.h"
#include "ops/workspace.h"

namespace esm::nn {

/// What a backward does with the gradients of matrices that are there: adds to them, or replaces them, whatever they
/// are (the first micro-batch of a step, which saves zeroing and reading them).
enum class WeightGradient { kAdd, kReplace };

/// Y = X W^T + b of the parameters `prefix`.weight [n, k] and `prefix`.bias [n].
class Linear {
 public:
  static void declare(std::vector<ParamSpec>& specs, const std::string& prefix, int64_t out, int64_t in,
                      double init_std);
  Linear(const UnitStorage& storage, const std::string& prefix);

  /// y[T, n] = x[T, k] W^T + b (+ residual, if defined).
  void forward(ops::Workspace& ws, const at::Tensor& x, const at::Tensor& y, const at::Tensor& residual = {}) const;
  /// dx[T, k] = dy[T, n] W.
  void dgrad(ops::Workspace& ws, const at::Tensor& dy, const at::Tensor& dx) const;
  /// The gradient of the weight; that of the bias is summed up by the operation that makes dy.
  void wgrad(ops::Workspace& ws, const at::Tensor& dy, const at::Tensor& x,
             WeightGradient mode = WeightGradient::kAdd) const;
  /// Announces what all of that will ask for.
  void expect(ops::Workspace& ws, int64_t tokens) const;
  /// [n] FP32, for the operation that makes dy and can sum its columns on the way.
  const at::Tensor& bias_gradient() const { return dbias_; }

 private:
  at::Tensor weight_, bias_, dweight_, dbias_;
};

/// Row statistics that a LayerNorm keeps for backward.
struct NormStats {
  at::Tensor mean, rstd;  // [T] FP32
};

/// LayerNorm of the parameters `prefix`.weight and `prefix`.bias [D].
class LayerNorm {
 public:
  static void declare(std::vector<ParamSpec>& specs, const std::string& prefix, int64_t size);
  LayerNorm(const UnitStorage& storage, const std::string& prefix, double eps);

  void forward(const Context& context, const at::Tensor& x, const at::Tensor& y, const NormStats& stats) const;

  struct Backward {
    at::Tensor x;
    NormStats stats;
    at::Tensor dy;
    at::Tensor dx;
    bool accumulate = false;  // dx += instead of dx =
    at::Tensor y;             // if defined: receives the forward output again; may be dy
    at::Tensor dx_sum = {};   // if defined: += column sums of dx
  };
  void backward(ops::Workspace& ws, const Backward& a) const;
  /// Announces what backward will ask for.
  void expect(ops::Workspace& ws, int64_t rows) const;

 private:
  at::Tensor weight_, bias_, dweight_, dbias_;
  double eps_;
};

}  // namespace esm::nn
