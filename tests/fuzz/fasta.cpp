#include "base/check.h"
#include "data/fasta_reader.h"
#include "data/tokenizer.h"
#include "data/vocabulary.h"
#include "fuzz/targets.h"

namespace esm::fuzz {
namespace {

/// Tokenises like `data prepare`, and holds the reader to its protocol.
struct Tokens : data::RecordSink {
  data::Tokenizer tokenizer;
  std::vector<uint8_t> tokens;
  bool open = false;

  void begin_record(std::string_view id) override {
    ESM_CHECK(!open, "a record begins inside another");
    ESM_CHECK(id.find_first_of(" \t\n") == std::string_view::npos, "white space in the id '{}'", id);
    open = true;
    tokenizer.begin();
  }
  void sequence(std::string_view piece) override {
    ESM_CHECK(open, "a sequence outside of a record");
    tokenizer.append(piece, tokens);
  }
  void end_record() override {
    ESM_CHECK(open, "a record ends that never began");
    open = false;
    tokenizer.finish(tokens);
  }
};

}  // namespace

void run_fasta(std::string_view bytes) {
  const MemoryFile file(bytes);
  Tokens sink;
  try {
    data::ByteSource source(file.path());
    data::read_fasta(source, file.path(), sink);
  } catch (const DataError&) {
    return;
  }
  ESM_CHECK(!sink.open, "the last record never ends");
  for (const uint8_t token : sink.tokens) ESM_CHECK(data::is_residue(token), "token {} is no residue", token);
}

}  // namespace esm::fuzz
