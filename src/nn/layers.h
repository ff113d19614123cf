// The two parts every unit is made of: a linear map and a LayerNorm, as views into a unit's storage.
#pragma once
#include <string>

#include "nn/storage.h"
#include "ops/code_counts.h"
#include "ops/gemm_operand.h"
#include "ops/pack.h"
#include "ops/scales.h"
#include "precision/linear_formats.h"

namespace esm::nn {

/// What a backward does with the gradients of matrices that are there: adds to them, or replaces them, whatever they
/// are (the first micro-batch of a step, which saves zeroing and reading them).
enum class WeightGradient { kAdd, kReplace };

/// How the products of a unit's linear layers work.
struct Products {
  precision::Precision precision = precision::Precision::kBf16;
  ops::Scales* scales = nullptr;      // of the model: takes in those of the unit
  ops::CodeCounts* counts = nullptr;  // likewise
  kernels::AmaxChoice amax_choice = kernels::AmaxChoice::kMax;
  int margin = 0;
  int64_t tokens = 0;  // T, the most of a micro-batch
  int capability = 0;  // compute capability of the device; 0: the CPU
};

/// Room for the codes of one matrix in one order.
struct CodeBuffer {
  at::Tensor bytes;     // uint8
  at::Tensor inverses;  // FP32, or as many bytes
};
/// In both. Undefined tensors where nothing is quantized.
struct CodeBuffers {
  CodeBuffer by_rows, by_columns;
};

/// Which orders of codes an operation shall make.
enum class Codes { kRows, kColumns, kBoth };

/// Y = X W^T + b of the parameters `prefix`.weight [n, k] and `prefix`.bias [n]. With quantized products it holds the
/// codes of the weight, and says in which form products read matrices: input() and gradient() have that form, for the
/// operation that makes them.
class Linear {
 public:
  static void declare(std::vector<ParamSpec>& specs, const std::string& prefix, int64_t out, int64_t in,
                      double init_std);
  /// Without `products` nothing is quantized. Scales are named `prefix`.x, .weight, .dy.
  Linear(const UnitStorage& storage, const std::string& prefix, const Products* products = nullptr);

  /// X [T, k] with codes in `room`: by rows for forward(), by columns for wgrad(), then with the scale that it had by
  /// rows.
  ops::GemmOperand input(const ops::Pack& pack, const CodeBuffers& room, const at::Tensor& x, Codes codes) const;
  /// dY [T, n] with codes in `room`, in both orders.
  ops::GemmOperand gradient(const ops::Pack& pack, const CodeBuffers& room, const at::Tensor& dy) const;

  /// Makes the codes of the weight, once after each change of it.
  void quantize_weight(ops::Workspace& ws) const;

  /// y[T, n] = x[T, k] W^T + b (+ residual, if defined).
  void forward(ops::Workspace& ws, const ops::GemmOperand& x, const at::Tensor& y,
               const at::Tensor& residual = {}) const;
  /// dx[T, k] = dy[T, n] W.
  void dgrad(ops::Workspace& ws, const ops::GemmOperand& dy, const at::Tensor& dx) const;
  /// The gradient of the weight; that of the bias is summed up by the operation that makes dy.
  void wgrad(ops::Workspace& ws, const ops::GemmOperand& dy, const ops::GemmOperand& x,
             WeightGradient mode = WeightGradient::kAdd) const;

  /// What codes of a matrix of so many rows need of a CodeBuffers.
  struct Room {
    int64_t bytes = 0, inverses = 0;
    void include(const Room& other);
  };
  Room input_room(int64_t tokens) const;
  Room gradient_room(int64_t tokens) const;
  static CodeBuffers make_room(const Context& context, const Room& room, bool by_columns);
  /// Operations that make X write it nowhere but in codes.
  bool fused() const {
    return formats_.path == precision::Path::kHardware && formats_.x.grouping == precision::Grouping::kTensor;
  }
  const precision::LinearFormats& formats() const { return formats_; }
  /// Codes of the weight, for memory tables; undefined ones too.
  void each_buffer(const std::function<void(const at::Tensor&)>& body) const;

  /// Announces what all of that will ask for.
  void expect(ops::Workspace& ws, int64_t tokens) const;
  /// [n] FP32, for the operation that makes dy and can sum its columns on the way.
  const at::Tensor& bias_gradient() const { return dbias_; }

 private:
  ops::GemmOperand weight() const;
  ops::GemmOperand operand(const precision::Operand& format, int64_t scale, const CodeBuffers& room,
                           const at::Tensor& values, Codes codes) const;
  Room room(const precision::Operand& format, int64_t rows, int64_t cols) const;
  void quantize(const Context& context, const std::string& prefix, const Products& products);

  bool emulated() const { return formats_.path == precision::Path::kEmulated; }

  at::Tensor weight_, bias_, dweight_, dbias_;
  precision::LinearFormats formats_;
  ops::Scales* scales_ = nullptr;
  ops::CodeCounts* counts_ = nullptr;
  int64_t x_scale_ = -1, weight_scale_ = -1, dy_scale_ = -1;  // of scales_; -1: none
  int64_t x_count_ = -1, weight_count_ = -1, dy_count_ = -1;  // of counts_; -1: none
  CodeBuffers weight_codes_;
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

  void forward(ops::Workspace& ws, const at::Tensor& x, const ops::GemmOperand& y, const NormStats& stats) const;

  struct Backward {
    at::Tensor x;
    NormStats stats;
    at::Tensor dy;
    ops::GemmOperand dx;
    bool accumulate = false;  // dx += instead of dx =
    ops::GemmOperand y;       // if there is one: receives the forward output again; may be dy
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
