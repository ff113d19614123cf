// Reads the pickles that torch.save writes (protocol 2), without running anything: a pickle is a program for a small
// machine that may call any Python function by name. This one knows containers, numbers, text, tensors, OrderedDict and
// argparse.Namespace; every other name and every other opcode is refused. Pickles come from strangers: no value is
// touched before it is checked, nothing is allocated by a size that a file merely claims, and nothing recurses.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"

namespace esm::checkpoint {

/// A tensor as a pickle describes it; its bytes lie elsewhere, under the name `storage`. In elements, and not checked
/// against the storage. `shape` and `strides` are equally long and not negative.
struct PickledTensor {
  std::string storage;
  DType dtype = DType::kF32;
  int64_t storage_elements = 0;
  int64_t offset = 0;
  std::vector<int64_t> shape = {}, strides;
};

struct PickledValue {
  enum class Kind {
    kNone,
    kBool,     // number
    kInteger,  // number
    kReal,     // real
    kText,     // text
    kTuple,    // items
    kList,     // items
    kDict,     // items: key, value, key, value, ...; of OrderedDict too
    kObject,   // an argparse.Namespace; items as of a dict: its attributes
    kTensor,   // number: index into Pickle::tensors()
    kName,     // number: which of the known Python names
    kStorage   // number: index into Pickle::tensors(), of one that has no shape yet
  };
  Kind kind = Kind::kNone;
  int64_t number = 0;
  double real = 0;
  std::string text;
  std::vector<uint32_t> items;  // for Pickle::at(); may lead back to where one comes from
};

/// A whole pickle. `where` is named in errors, which are CheckpointErrors.
class Pickle {
 public:
  /// Throws for a pickle that is damaged, that has another protocol, or that names what is not known here.
  Pickle(std::span<const std::byte> bytes, std::string where);

  const PickledValue& root() const { return at(root_); }
  const PickledValue& at(uint32_t item) const { return values_.at(item); }
  const PickledTensor& tensor(const PickledValue& value) const {
    return tensors_.at(static_cast<size_t>(value.number));
  }
  const std::string& where() const { return where_; }

  /// What stands in a dict or a Namespace under a name, nullptr without it. The last one counts, as in Python.
  const PickledValue* find(const PickledValue& value, std::string_view key) const;

 private:
  class Machine;
  std::string where_;
  std::vector<PickledValue> values_;
  std::vector<PickledTensor> tensors_;
  uint32_t root_ = 0;
};

}  // namespace esm::checkpoint
