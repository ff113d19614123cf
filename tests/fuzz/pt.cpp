#include "base/check.h"
#include "checkpoint/torch_file.h"
#include "fuzz/targets.h"
#include "support/zip_file.h"

namespace esm::fuzz {

void run_pt(std::string_view bytes) {
  const bool is_file = bytes.starts_with("PK");
  const MemoryFile file(is_file ? std::string(bytes)
                                : test::stored_zip({{"a/data.pkl", std::string(bytes)},
                                                    {"a/data/0", std::string(64, '\1')},
                                                    {"a/data/1", std::string(48, '\2')}}));
  try {
    checkpoint::TorchFile opened(file.path());
    const checkpoint::PickledValue* model = opened.pickle().find(opened.pickle().root(), "model");
    if (model == nullptr) model = &opened.pickle().root();
    if (model->kind != checkpoint::PickledValue::Kind::kDict) return;
    opened.load(*model);
    size_t sum = 0;
    for (const checkpoint::TensorRef& tensor : opened.tensors()) {
      ESM_CHECK(checkpoint::element_count(tensor.shape) * size_of(tensor.dtype) == std::ssize(tensor.bytes),
                "{} {} of {} bytes", dtype_name(tensor.dtype), checkpoint::shape_text(tensor.shape),
                tensor.bytes.size());
      for (const std::byte b : tensor.bytes) sum += static_cast<size_t>(b);
    }
    ESM_CHECK(sum < size_t{1} << 40, "more bytes than any file has");
  } catch (const CheckpointError&) {
  }
}

}  // namespace esm::fuzz
