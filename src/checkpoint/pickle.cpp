#include "checkpoint/pickle.h"

#include <array>
#include <bit>
#include <unordered_map>

#include "base/check.h"
#include "base/narrow.h"

namespace esm::checkpoint {
using Kind = PickledValue::Kind;
namespace {

// ESM-2 15B has 70,000 values in 300 KB.
constexpr size_t kMaxBytes = size_t{16} << 20;
constexpr size_t kMaxValues = 1'000'000;
// Of storages and tensors together: a few bytes of references to kept values make one, which takes up to 1 KB here.
constexpr size_t kMaxTensors = 100'000;
// torch.save numbers its storages. Each tensor holds a copy of the name, whose text the pickle holds only once.
constexpr size_t kMaxStorageName = 256;

enum class Known { kRebuildTensor, kOrderedDict, kNamespace, kStorageType };

struct KnownName {
  std::string_view module, name;
  Known what;
  DType dtype = DType::kF32;  // kStorageType
};

// All that a pickle may name. Nothing is added here that does more than hold values.
constexpr std::array kKnownNames{
    KnownName{"torch._utils", "_rebuild_tensor_v2", Known::kRebuildTensor},
    KnownName{"collections", "OrderedDict", Known::kOrderedDict},
    KnownName{"argparse", "Namespace", Known::kNamespace},
    KnownName{"torch", "DoubleStorage", Known::kStorageType, DType::kF64},
    KnownName{"torch", "FloatStorage", Known::kStorageType, DType::kF32},
    KnownName{"torch", "HalfStorage", Known::kStorageType, DType::kF16},
    KnownName{"torch", "BFloat16Storage", Known::kStorageType, DType::kBF16},
    KnownName{"torch", "LongStorage", Known::kStorageType, DType::kI64},
    KnownName{"torch", "IntStorage", Known::kStorageType, DType::kI32},
    KnownName{"torch", "ShortStorage", Known::kStorageType, DType::kI16},
    KnownName{"torch", "CharStorage", Known::kStorageType, DType::kI8},
    KnownName{"torch", "ByteStorage", Known::kStorageType, DType::kU8},
    KnownName{"torch", "BoolStorage", Known::kStorageType, DType::kBool},
};

bool is_name(const PickledValue& value, Known what) {
  return value.kind == Kind::kName && kKnownNames[static_cast<size_t>(value.number)].what == what;
}

}  // namespace

// The machine that a pickle is a program for: a stack of values, marks in it, and a memo.
class Pickle::Machine {
 public:
  Machine(Pickle& pickle, std::span<const std::byte> bytes) : pickle_(pickle), bytes_(bytes) {}

  uint32_t run() {
    if (bytes_.size() > kMaxBytes)
      fail<CheckpointError>("{}: damaged: {} bytes are too many for the description of a model", pickle_.where_,
                            bytes_.size());
    if (byte() != 0x80) damaged("it does not begin like a pickle");
    if (const int protocol = byte(); protocol != 2)
      fail<CheckpointError>("{}: a pickle of protocol {}; torch.save writes 2 unless told otherwise", pickle_.where_,
                            protocol);
    while (step()) {
    }
    if (stack_.size() != 1 || !marks_.empty()) damaged("it ends with values left over");
    return stack_.front();
  }

 private:
  template <class... Args>
  [[noreturn]] void damaged(fmt::format_string<Args...> format, Args&&... args) const {
    fail<CheckpointError>("{}: damaged at byte {}: {}", pickle_.where_, at_,
                          fmt::format(format, std::forward<Args>(args)...));
  }

  // One opcode; false after the last.
  bool step() {
    const int opcode = byte();
    switch (opcode) {
      case '.': return false;
      case '(': push_mark(); break;
      case 'N': push({.kind = Kind::kNone}); break;
      case 0x88: push({.kind = Kind::kBool, .number = 1}); break;
      case 0x89: push({.kind = Kind::kBool, .number = 0}); break;
      case 'K': push({.kind = Kind::kInteger, .number = byte()}); break;
      case 'M': push({.kind = Kind::kInteger, .number = static_cast<int64_t>(little_endian(2))}); break;
      case 'J':
        push({.kind = Kind::kInteger, .number = std::bit_cast<int32_t>(static_cast<uint32_t>(little_endian(4)))});
        break;
      case 0x8a: push({.kind = Kind::kInteger, .number = long_integer()}); break;
      case 'G': push({.kind = Kind::kReal, .real = real()}); break;
      case 'X': push({.kind = Kind::kText, .text = std::string(take(little_endian(4)))}); break;
      case '}': push({.kind = Kind::kDict}); break;
      case ']': push({.kind = Kind::kList}); break;
      case ')': push({.kind = Kind::kTuple}); break;
      case 't': push_tuple(pop_to_mark()); break;
      case 0x85: push_tuple(pop_many(1)); break;
      case 0x86: push_tuple(pop_many(2)); break;
      case 0x87: push_tuple(pop_many(3)); break;
      case 'a': append(pop_many(1)); break;
      case 'e': append(pop_to_mark()); break;
      case 's': set_items(pop_many(2)); break;
      case 'u': set_items(pop_to_mark()); break;
      case 'q': keep(static_cast<uint32_t>(byte())); break;
      case 'r': keep(static_cast<uint32_t>(little_endian(4))); break;
      case 'h': remember(static_cast<uint32_t>(byte())); break;
      case 'j': remember(static_cast<uint32_t>(little_endian(4))); break;
      case 'c': push_name(); break;
      case 'Q': load_storage(); break;
      case 'R': call(); break;
      case 0x81: make_object(); break;
      case 'b': build(); break;
      default: damaged("opcode {:#04x}, which torch.save does not write", opcode);
    }
    return true;
  }

  // --- bytes -----------------------------------------------------------------------------------------------------

  std::string_view take(uint64_t n) {
    if (n > bytes_.size() - at_) damaged("it ends in the middle of a value");
    const std::string_view taken(reinterpret_cast<const char*>(bytes_.data()) + at_, static_cast<size_t>(n));
    at_ += static_cast<size_t>(n);
    return taken;
  }
  int byte() { return static_cast<unsigned char>(take(1).front()); }
  uint64_t little_endian(size_t n) {
    uint64_t value = 0;
    const std::string_view taken = take(n);
    for (size_t i = 0; i < n; ++i) value |= uint64_t{static_cast<unsigned char>(taken[i])} << (8 * i);
    return value;
  }
  int64_t long_integer() {
    const auto n = static_cast<size_t>(byte());
    if (n == 0) return 0;
    if (n > 8) damaged("an integer of {} bytes", n);
    const auto unused = static_cast<int>(64 - 8 * n);
    return std::bit_cast<int64_t>(little_endian(n) << unused) >> unused;
  }
  double real() {
    const std::string_view taken = take(8);
    uint64_t bits = 0;
    for (const char c : taken) bits = bits << 8 | static_cast<unsigned char>(c);
    return std::bit_cast<double>(bits);
  }
  std::string_view line() {
    const std::string_view rest(reinterpret_cast<const char*>(bytes_.data()) + at_, bytes_.size() - at_);
    const size_t end = rest.find('\n');
    if (end == std::string_view::npos) damaged("it ends in the middle of a name");
    at_ += end + 1;
    return rest.substr(0, end);
  }

  // --- the stack ---------------------------------------------------------------------------------------------------

  void push(PickledValue value) {
    if (pickle_.values_.size() >= kMaxValues) damaged("more than {} values", kMaxValues);
    stack_.push_back(narrow<uint32_t>(pickle_.values_.size()));
    pickle_.values_.push_back(std::move(value));
  }
  void push_tensor(Kind kind, PickledTensor tensor) {
    if (pickle_.tensors_.size() >= kMaxTensors) damaged("more than {} storages and tensors", kMaxTensors);
    pickle_.tensors_.push_back(std::move(tensor));
    push({.kind = kind, .number = std::ssize(pickle_.tensors_) - 1});
  }
  void push_mark() {
    if (marks_.size() >= kMaxValues) damaged("more than {} marks", kMaxValues);
    marks_.push_back(stack_.size());
  }
  PickledValue& value(uint32_t item) { return pickle_.values_[item]; }
  size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  uint32_t top() const {
    if (stack_.size() <= floor()) damaged("a value is wanted that is not there");
    return stack_.back();
  }
  std::vector<uint32_t> pop_many(size_t n) {
    if (stack_.size() - floor() < n) damaged("values are wanted that are not there");
    std::vector<uint32_t> items(stack_.end() - std::ssize(stack_) + static_cast<std::ptrdiff_t>(stack_.size() - n),
                                stack_.end());
    stack_.resize(stack_.size() - n);
    return items;
  }
  uint32_t pop() { return pop_many(1).front(); }
  std::vector<uint32_t> pop_to_mark() {
    if (marks_.empty()) damaged("a mark is wanted that is not there");
    std::vector<uint32_t> items = pop_many(stack_.size() - marks_.back());
    marks_.pop_back();
    return items;
  }
  void push_tuple(std::vector<uint32_t> items) { push({.kind = Kind::kTuple, .items = std::move(items)}); }

  void keep(uint32_t name) {
    memo_[name] = top();
    if (memo_.size() > kMaxValues) damaged("more than {} values are kept", kMaxValues);
  }
  void remember(uint32_t name) {
    const auto it = memo_.find(name);
    if (it == memo_.end()) damaged("value {} is wanted, which was not kept", name);
    stack_.push_back(it->second);
    // Without new values a pickle could still fill the memory with references.
    if (stack_.size() > kMaxValues) damaged("more than {} values", kMaxValues);
  }

  void add_to(Kind kind, const char* what, const std::vector<uint32_t>& items) {
    PickledValue& target = value(top());
    if (target.kind != kind) damaged("{} is wanted, found something else", what);
    references_ += items.size();
    if (references_ > kMaxValues) damaged("more than {} values", kMaxValues);
    target.items.insert(target.items.end(), items.begin(), items.end());
  }
  void append(const std::vector<uint32_t>& items) { add_to(Kind::kList, "a list", items); }
  void set_items(const std::vector<uint32_t>& items) {
    if (items.size() % 2 != 0) damaged("a key without a value");
    add_to(Kind::kDict, "a dict", items);
  }

  // --- names and what they do ------------------------------------------------------------------------------------

  void push_name() {
    const std::string_view module = line(), name = line();
    for (size_t i = 0; i < kKnownNames.size(); ++i)
      if (kKnownNames[i].module == module && kKnownNames[i].name == name) {
        push({.kind = Kind::kName, .number = static_cast<int64_t>(i)});
        return;
      }
    fail<CheckpointError>(
        "{}: it calls for '{}.{}', which is not among the few names that weights need; refused, and nothing of it was "
        "run",
        pickle_.where_, module.substr(0, 200), name.substr(0, 200));
  }

  const PickledValue& expect(uint32_t item, Kind kind, const char* what) const {
    const PickledValue& found = pickle_.values_[item];
    if (found.kind != kind) damaged("{} is wanted, found something else", what);
    return found;
  }
  int64_t count(uint32_t item, const char* what) const {
    const int64_t number = expect(item, Kind::kInteger, what).number;
    if (number < 0) damaged("{} is {}", what, number);
    return number;
  }
  std::vector<int64_t> counts(uint32_t item, const char* what) const {
    const std::vector<uint32_t>& items = expect(item, Kind::kTuple, what).items;
    if (items.size() > 16) damaged("{} of {} dimensions", what, items.size());
    std::vector<int64_t> numbers;
    for (const uint32_t i : items) numbers.push_back(count(i, what));
    return numbers;
  }

  // Arguments may be a kept value that thousands of calls share: they are looked at where they are, never copied, and
  // new values, which may move the old ones, come last.

  // ("storage", type, name, device, elements)
  void load_storage() {
    const std::vector<uint32_t>& items = expect(pop(), Kind::kTuple, "the tuple of a storage").items;
    if (items.size() != 5 || expect(items[0], Kind::kText, "the word storage").text != "storage")
      damaged("five words are wanted of a storage");
    const PickledValue& type = value(items[1]);
    if (!is_name(type, Known::kStorageType)) damaged("the type of a storage is wanted, found something else");
    const std::string& name = expect(items[2], Kind::kText, "the name of a storage").text;
    if (name.size() > kMaxStorageName)
      damaged("the name of a storage has {} bytes, {} are the most", name.size(), kMaxStorageName);
    push_tensor(Kind::kStorage, {.storage = name,
                                 .dtype = kKnownNames[static_cast<size_t>(type.number)].dtype,
                                 .storage_elements = count(items[4], "the size of a storage")});
  }

  void call() {
    const std::vector<uint32_t>& arguments = expect(pop(), Kind::kTuple, "a tuple of arguments").items;
    const PickledValue& callee = value(pop());
    if (is_name(callee, Known::kOrderedDict) && arguments.empty())
      push({.kind = Kind::kDict});
    else if (is_name(callee, Known::kRebuildTensor))
      rebuild_tensor(arguments);
    else
      damaged("a call that torch.save does not write");
  }

  // (storage, offset, shape, strides, requires_grad, hooks[, metadata])
  void rebuild_tensor(const std::vector<uint32_t>& arguments) {
    if (arguments.size() != 6 && arguments.size() != 7) damaged("a tensor made of {} things", arguments.size());
    const PickledValue& storage = expect(arguments[0], Kind::kStorage, "a storage");
    PickledTensor tensor = pickle_.tensor(storage);
    tensor.offset = count(arguments[1], "the offset of a tensor");
    tensor.shape = counts(arguments[2], "the shape of a tensor");
    tensor.strides = counts(arguments[3], "the strides of a tensor");
    if (tensor.shape.size() != tensor.strides.size()) damaged("a tensor with more sizes than strides, or fewer");
    push_tensor(Kind::kTensor, std::move(tensor));
  }

  void make_object() {
    const bool no_arguments = expect(pop(), Kind::kTuple, "a tuple of arguments").items.empty();
    if (!is_name(value(pop()), Known::kNamespace) || !no_arguments) damaged("an object that torch.save does not write");
    push({.kind = Kind::kObject});
  }

  // Attributes of a Namespace; those that a state_dict carries (_metadata) say nothing that is wanted.
  void build() {
    const std::vector<uint32_t>& attributes = expect(pop(), Kind::kDict, "a dict of attributes").items;
    const Kind kind = value(top()).kind;
    if (kind == Kind::kDict) return;
    add_to(Kind::kObject, "a Namespace", attributes);
  }

  Pickle& pickle_;
  std::span<const std::byte> bytes_;
  size_t at_ = 0;
  std::vector<uint32_t> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint32_t, uint32_t> memo_;
  size_t references_ = 0;
};

Pickle::Pickle(std::span<const std::byte> bytes, std::string where) : where_(std::move(where)) {
  root_ = Machine(*this, bytes).run();
}

const PickledValue* Pickle::find(const PickledValue& value, std::string_view key) const {
  if (value.kind != Kind::kDict && value.kind != Kind::kObject) return nullptr;
  const PickledValue* found = nullptr;
  for (size_t i = 0; i + 1 < value.items.size(); i += 2)
    if (const PickledValue& name = at(value.items[i]); name.kind == Kind::kText && name.text == key)
      found = &at(value.items[i + 1]);
  return found;
}

}  // namespace esm::checkpoint
