// Parameters of one unit of a model in flat buffers, one per role (design.md decision 4).
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "device/context.h"
#include "ops/aten.h"
#include "precision/recipe.h"

namespace esm::nn {

/// kCompute: what GEMMs read; BF16, or in FP32 mode the master buffer itself. The others are FP32.
enum class Role { kCompute, kMaster, kGrad, kExpAvg, kExpAvgSq };

/// What a parameter is, for weight decay groups and initial values.
enum class ParamKind { kMatrix, kBias, kNormWeight, kNormBias, kEmbedding };

struct ParamSpec {
  std::string name;  // full name: "layers.3.ffn.fc1.weight"
  std::vector<int64_t> shape;
  ParamKind kind = ParamKind::kMatrix;
  /// Matrices and embeddings start normal(0, init_std), LayerNorm weights 1, biases 0.
  double init_std = 0.02;
  /// This row of an embedding starts at 0; -1: none.
  int64_t zero_row = -1;
  /// Rows that a GEMM may see beyond the parameter's own: padding, always 0; 0: none.
  int64_t padded_rows = 0;
};

struct ParamEntry {
  ParamSpec spec;
  int64_t offset = 0;  // elements from the start of the flat buffer, a multiple of kAlignment
  int64_t numel = 0;
};

/// Every parameter starts at a multiple of kAlignment elements; elements between parameters are padding and stay 0 in
/// every role. Tensors handed out are views: they stay valid, and see every change, as long as the storage lives.
class UnitStorage {
 public:
  static constexpr int64_t kAlignment = 64;

  /// Allocates kMaster (zeros), kCompute, and kGrad (zeros) if `training`.
  UnitStorage(const Context& context, std::string name, std::vector<ParamSpec> specs, precision::Precision precision,
              bool training);

  /// "embedding", "layers.0", ..., "head".
  const std::string& name() const { return name_; }
  const std::vector<ParamEntry>& entries() const { return entries_; }
  /// Parameters, padding not counted.
  int64_t numel() const { return numel_; }
  /// Elements of each flat buffer, padding included; a multiple of kAlignment.
  int64_t flat_numel() const { return flat_numel_; }

  /// Allocates the buffer of `role`, zeroed, unless it is there.
  void allocate(Role role);
  bool has(Role role) const { return buffer(role).defined(); }
  /// False when kCompute is kMaster itself.
  bool has_compute_copy() const { return precision_ != precision::Precision::kFp32; }
  /// [flat_numel()]. The role must have been allocated.
  const at::Tensor& flat(Role role) const;
  /// Parameter `index` (of entries()) or `name` (full), in its shape. An unknown name is an InternalError.
  at::Tensor view(Role role, size_t index) const;
  at::Tensor view(Role role, std::string_view name) const;
  /// Parameter `name` with its padded_rows, [padded_rows, ...].
  at::Tensor padded_view(Role role, std::string_view name) const;
  /// -1 when there is no such parameter.
  int64_t find(std::string_view name) const;

  /// Fills kMaster with initial values (see ParamSpec) and syncs. A value depends on seed, parameter name and element
  /// only.
  void init(uint64_t seed);
  /// kCompute = kMaster, rounded to nearest even. To be called after every change of kMaster; free in FP32 mode.
  void sync_compute();
  void zero_grad();

 private:
  const at::Tensor& buffer(Role role) const { return buffers_[static_cast<size_t>(role)]; }

  Context context_;
  std::string name_;
  precision::Precision precision_;
  std::vector<ParamEntry> entries_;
  int64_t numel_ = 0;
  int64_t flat_numel_ = 0;
  std::array<at::Tensor, 5> buffers_;
};

}  // namespace esm::nn
