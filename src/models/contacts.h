// Residue contacts from attention maps (Rao et al. 2021): logistic regression over the maps of all layers and heads,
// each symmetrised and corrected for its row and column averages. Needs the probabilities themselves: an exact, slower
// path.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "data/batch.h"
#include "nn/storage.h"

namespace esm::models {

/// Logistic regression over attention maps; not trained here, comes with imported weights.
struct ContactHead {
  at::Tensor weight;  // [1, layers * heads] FP32, layer-major
  at::Tensor bias;    // [1] FP32
};

/// Collects one layer after the other.
class ContactMaps {
 public:
  /// Of the segments of `batch`, which must outlive this. Rows and columns of <eos> are zeroed, then the first and last
  /// token of a segment cut off.
  ContactMaps(const data::Batch& batch, const ContactHead& head, int64_t heads);

  /// qkv [T, 3 H K] of layer `layer` after rotary, on any device.
  void add_layer(int64_t layer, const at::Tensor& qkv);

  /// Per segment [n - 2, n - 2] FP32 probabilities; undefined for dummies and segments of fewer than three tokens.
  std::vector<at::Tensor> probabilities() const;

 private:
  struct Segment {
    int64_t first = 0, length = 0;
    std::vector<double> sum;  // [(n - 2)^2] weighted maps
  };
  void add_map(Segment& segment, double weight, const at::Tensor& probabilities);

  std::span<const uint8_t> tokens_;
  std::vector<float> weight_;
  double bias_;
  int64_t heads_;
  std::vector<Segment> segments_;
};

}  // namespace esm::models
