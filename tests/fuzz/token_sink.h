// Where fuzzed readers of sequences put what they find.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "data/record_sink.h"
#include "data/tokenizer.h"
#include "data/vocabulary.h"

namespace esm::fuzz {

/// Tokenises like `data prepare`, and holds the reader to its protocol.
struct Tokens : data::RecordSink {
  data::Tokenizer tokenizer;
  std::vector<uint8_t> tokens;
  bool open = false;

  void begin_record(std::string_view) override {
    ESM_CHECK(!open, "a record begins inside another");
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
  void skip_record(data::Skip) override { ESM_CHECK(!open, "a record is skipped inside another"); }

  /// After the last record.
  void check() const {
    ESM_CHECK(!open, "the last record never ends");
    for (const uint8_t token : tokens) ESM_CHECK(data::is_residue(token), "token {} is no residue", token);
  }
};

}  // namespace esm::fuzz
