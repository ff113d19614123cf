// How the tensors of a foreign checkpoint format fill ours: names, shapes and rows. Pure tables; no data is touched
// here.
//
// Native names of ESM-2 (H hidden, F feed-forward, N = 0 .. layers - 1):
//   embedding.weight [33, H]; final_norm.{weight,bias} [H]
//   layers.N.attention_norm.{weight,bias} [H]
//   layers.N.attention.qkv.{weight [3H, H], bias [3H]}   rows: all of q, then k, then v
//   layers.N.attention.out.{weight [H, H], bias [H]}
//   layers.N.ffn_norm.{weight,bias} [H]
//   layers.N.ffn.fc1.{weight [F, H], bias [F]}; layers.N.ffn.fc2.{weight [H, F], bias [H]}
//   head.dense.{weight [H, H], bias [H]}; head.norm.{weight,bias} [H]; head.bias [33]
//   contact.weight [1, layers * heads], contact.bias [1]   optional
// The decoder of the head is embedding.weight.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/esm2_config.h"

namespace esm::models {

struct NamedShape {
  std::string name;
  std::vector<int64_t> shape;
};

/// Parameters in model order, without the optional contact head.
std::vector<NamedShape> native_tensors(const Esm2Config& config);
/// contact.weight and contact.bias.
std::vector<NamedShape> native_contact_tensors(const Esm2Config& config);

/// Which native row (first dimension) a foreign row holds.
struct RowMap {
  enum class Kind {
    kSlice,           // foreign row r is native row offset + r
    kInterleavedQkv,  // foreign rows run (head, q|k|v, i), native rows (q|k|v, head, i)
    kPadded           // foreign rows beyond the native ones are padding
  };
  /// What padding rows hold.
  enum class Pad { kZero, kLowest };

  Kind kind = Kind::kSlice;
  int64_t offset = 0;       // kSlice
  int64_t heads = 0;        // kInterleavedQkv
  int64_t native_rows = 0;  // kPadded
  Pad pad = Pad::kZero;     // kPadded

  /// -1: a padding row. `rows`: first dimension of the foreign tensor.
  int64_t native_row(int64_t row, int64_t rows) const;
};

/// One tensor of a foreign format.
struct ForeignTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::string native;
  RowMap rows;
  bool required = true;  // false: contact head
  bool tied = false;     // a second copy of `native` (the decoder): must hold the same values, optional
};

/// A foreign format for one model shape.
struct ForeignLayout {
  std::string format;                 // "Hugging Face", for messages
  std::string sizes = "config.json";  // what of the file says how large the model is, for messages
  std::vector<ForeignTensor> tensors;

  const ForeignTensor* find(std::string_view name) const;

  void add(std::string name, std::vector<int64_t> shape, std::string native, RowMap rows = {});
  /// `name`.weight and `name`.bias of a LayerNorm [size], or of a linear layer [out, in].
  void add_norm(const std::string& name, int64_t size, const std::string& native);
  void add_linear(const std::string& name, int64_t out, int64_t in, const std::string& native, RowMap rows = {});
};

/// What a file holds, compared with a layout.
struct LayoutMatch {
  struct Pair {
    const ForeignTensor* tensor = nullptr;  // into the layout
    std::string source;                     // name in the file (its own spelling)
  };
  std::vector<Pair> pairs;                  // every tensor of the layout that the file has, in layout order
  std::vector<std::string> passed_through;  // known, and not used by the model
};

/// Matches a file against `layout`. canonical_name turns a spelling of the file into the layout's; is_passed_through
/// says which other names are known and harmless. Throws CheckpointError that names the first differing shape, or all
/// that is missing and unexpected. `where` is named in errors.
LayoutMatch match_layout(const ForeignLayout& layout, std::span<const NamedShape> file,
                         std::string (*canonical_name)(std::string_view), bool (*is_passed_through)(std::string_view),
                         const std::string& where);

}  // namespace esm::models
