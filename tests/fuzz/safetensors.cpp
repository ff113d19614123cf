#include "checkpoint/safetensors.h"

#include "base/check.h"
#include "fuzz/targets.h"

namespace esm::fuzz {
namespace {

std::string file_of(std::string_view bytes) {
  if (bytes.size() < 2) return std::string(bytes);
  const auto mode = static_cast<unsigned char>(bytes[0]), data_bytes = static_cast<unsigned char>(bytes[1]);
  if (mode % 2 == 1) return std::string(bytes.substr(1));
  const std::string_view header = bytes.substr(2);
  std::string file(8, '\0');
  for (size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(header.size() >> (8 * i) & 0xff);
  return file.append(header).append(data_bytes, 'x');
}

}  // namespace

void run_safetensors(std::string_view bytes) {
  const MemoryFile file(file_of(bytes));
  try {
    const checkpoint::SafetensorsFile opened(file.path());
    size_t sum = 0;
    for (const checkpoint::TensorRef& tensor : opened.tensors()) {
      ESM_CHECK(checkpoint::element_count(tensor.shape) * size_of(tensor.dtype) == std::ssize(tensor.bytes),
                "{} {} of {} bytes", dtype_name(tensor.dtype), checkpoint::shape_text(tensor.shape),
                tensor.bytes.size());
      for (const std::byte b : tensor.bytes) sum += static_cast<size_t>(b);
      ESM_CHECK(opened.find(tensor.name) == &tensor, "'{}' is not found", tensor.name);
    }
    ESM_CHECK(sum <= 255 * opened.file_bytes().size(), "more bytes than the file has");
  } catch (const CheckpointError&) {
  }
}

}  // namespace esm::fuzz
