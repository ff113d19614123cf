#include "data/fasta_reader.h"

#include "fuzz/targets.h"
#include "fuzz/token_sink.h"

namespace esm::fuzz {
namespace {

struct FastaTokens : Tokens {
  void begin_record(std::string_view id) override {
    ESM_CHECK(id.find_first_of(" \t\n") == std::string_view::npos, "white space in the id '{}'", id);
    Tokens::begin_record(id);
  }
};

}  // namespace

void run_fasta(std::string_view bytes) {
  const MemoryFile file(bytes);
  FastaTokens sink;
  try {
    data::ByteSource source(file.path());
    data::read_fasta(source, file.path(), sink);
  } catch (const DataError&) {
    return;
  }
  sink.check();
}

}  // namespace esm::fuzz
