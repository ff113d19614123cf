#include "data/table_reader.h"
#include "fuzz/targets.h"
#include "fuzz/token_sink.h"

namespace esm::fuzz {

void run_table(std::string_view bytes) {
  if (bytes.empty()) return;
  const MemoryFile file(bytes.substr(1));
  Tokens sink;
  try {
    data::ByteSource source(file.path());
    data::read_table(source, file.path(), bytes[0] % 2 == 0 ? ',' : '\t', {}, sink);
  } catch (const DataError&) {
    return;
  }
  sink.check();
}

}  // namespace esm::fuzz
