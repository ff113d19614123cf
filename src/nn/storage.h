// Parameters of one unit of a model in flat buffers, one per role (design.md decision 4).
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "device/context.h"
#include "ops/aten.h"
#include "precision/recipe.h"
#include "precision/state_formats.h"

namespace esm::nn {

/// kCompute: what GEMMs read; BF16, or in FP32 mode the master buffer itself. kGrad: FP32. The rest as StateFormats
/// says: kMaster FP32, or not there; kRemainder (ops::kRemainderType) only with MasterFormat::kBF16Remainder; both
/// moments FP32, BF16 or E4M3 codes (uint8), which come with an FP32 scale for each 128 elements.
enum class Role { kCompute, kMaster, kGrad, kExpAvg, kExpAvgSq, kRemainder, kExpAvgScale, kExpAvgSqScale };

/// What a parameter is, for weight decay groups and initial values.
enum class ParamKind { kMatrix, kBias, kNormWeight, kNormBias, kEmbedding };

/// kVectors: all but matrices and embeddings.
enum class ZeroGrad { kAll, kVectors };

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
  int64_t offset = 0;  // elements from the start of the flat buffer, a multiple of kAlignment; matrices come first
  int64_t extent = 0;  // elements with padding, likewise
  int64_t numel = 0;
};

/// Every parameter starts at a multiple of kAlignment elements; elements between parameters are padding and stay 0 in
/// every role. Tensors handed out are views: they stay valid, and see every change, as long as the storage lives.
class UnitStorage {
 public:
  static constexpr int64_t kAlignment = precision::kScaleElements;  // no two parameters share a scale

  /// Allocates weights (zeros) in formats.master, kCompute, and kGrad (zeros) if `training`. Master formats other than
  /// FP32 need a BF16 compute copy.
  UnitStorage(const Context& context, std::string name, std::vector<ParamSpec> specs, precision::Precision precision,
              bool training, precision::StateFormats formats = {});

  /// "embedding", "layers.0", ..., "head".
  const std::string& name() const { return name_; }
  const Context& context() const { return context_; }
  const std::vector<ParamEntry>& entries() const { return entries_; }
  /// Parameters, padding not counted.
  int64_t numel() const { return numel_; }
  /// Elements of each flat buffer, padding included; a multiple of kAlignment.
  int64_t flat_numel() const { return flat_numel_; }

  const precision::StateFormats& formats() const { return formats_; }
  /// Allocates both moments, zeroed, with their scales if they have any, unless they are there.
  void allocate_moments();
  bool has(Role role) const { return buffer(role).defined(); }
  /// False when kCompute is kMaster itself.
  bool has_compute_copy() const { return precision_ != precision::Precision::kFp32; }
  /// Calls body(what it is, tensor) for each buffer there is, under the last of its roles for one that has two.
  void for_each_buffer(const std::function<void(std::string_view name, const at::Tensor& buffer)>& body) const;
  /// [flat_numel()], scales [flat_numel() / 128]. The role must have been allocated.
  const at::Tensor& flat(Role role) const;
  /// Parameter `index` (of entries()) or `name` (full), in its shape; scales [ceil(numel / 128)]. An unknown name is an
  /// InternalError.
  at::Tensor view(Role role, size_t index) const;
  at::Tensor view(Role role, std::string_view name) const;
  /// Parameter `name` with its padded_rows, [padded_rows, ...].
  at::Tensor padded_view(Role role, std::string_view name) const;
  /// -1 when there is no such parameter.
  int64_t find(std::string_view name) const;

  /// The weights of a parameter in FP32 and in its shape, where the context works: a view of kMaster, or without that
  /// a new tensor, exactly what the master format holds.
  at::Tensor weights(size_t index) const;
  /// The same into `out`, FP32.
  void copy_weights(size_t index, const at::Tensor& out) const;
  /// Makes `values` (FP32 in host memory or where the context works; may be weights(index)) the weights, and syncs.
  /// Kept exactly, except by MasterFormat::kBF16, which rounds to nearest.
  void set_weights(size_t index, const at::Tensor& values);

  /// Fills the weights with initial values (see ParamSpec) and syncs. A value depends on seed, parameter name and
  /// element only.
  void init(uint64_t seed);
  /// kCompute = kMaster, rounded to nearest, ties away from 0. To be called after every change of kMaster through its
  /// views; nothing to do in FP32 mode and without kMaster.
  void sync_compute();
  void zero_grad(ZeroGrad what = ZeroGrad::kAll);

 private:
  void allocate(Role role, int64_t numel, at::ScalarType type);
  const at::Tensor& buffer(Role role) const { return buffers_[static_cast<size_t>(role)]; }
  at::Tensor flat_view(Role role, const ParamEntry& entry) const;

  Context context_;
  std::string name_;
  precision::Precision precision_;
  precision::StateFormats formats_;
  std::vector<ParamEntry> entries_;
  int64_t matrix_numel_ = 0;  // elements of the flat buffers that matrices and embeddings take
  int64_t numel_ = 0;
  int64_t flat_numel_ = 0;
  std::array<at::Tensor, 8> buffers_;
};

}  // namespace esm::nn
