#include "config/suggest.h"

#include "sample_config.h"
#include "support/catch.h"
#include "support/config_edits.h"

using esm::config::did_you_mean;
using esm::config::edit_distance;
using esm::config::suggest;
using esm::test::joined;
using esm::test::KeyLine;
using esm::test::keys_of;
using esm::test::split_lines;

TEST_CASE("edit distance counts a swap of neighbours as one") {
  CHECK(edit_distance("", "") == 0);
  CHECK(edit_distance("abc", "") == 3);
  CHECK(edit_distance("abc", "abc") == 0);
  CHECK(edit_distance("abc", "acb") == 1);
  CHECK(edit_distance("steps", "stepps") == 1);
  CHECK(edit_distance("kitten", "sitting") == 3);
}

TEST_CASE("suggestions know typing mistakes and misplaced keys") {
  const std::vector<std::string> names{"seed", "optimizer.lr", "optimizer.weight_decay", "train.max_steps",
                                       "schedule.warmup_steps"};
  CHECK(suggest("train.max_stepps", names) == std::vector<std::string>{"train.max_steps"});
  CHECK(suggest("Optimizer.LR", names).front() == "optimizer.lr");
  CHECK(suggest("optimizer.weight-decay", names).front() == "optimizer.weight_decay");
  CHECK(suggest("lr", names).front() == "optimizer.lr");
  CHECK(suggest("train.seed", names).front() == "seed");
  CHECK(suggest("optimizer.warmup_steps", names).front() == "schedule.warmup_steps");
  CHECK(suggest("v", {"n", "f"}).empty());
  CHECK(suggest("quite_another_thing", names).empty());
  CHECK(suggest(std::string(100000, 'x'), names).empty());
  CHECK(did_you_mean({}).empty());
  CHECK(did_you_mean({"a"}) == "; did you mean a?");
  CHECK(did_you_mean({"a", "b", "c"}) == "; did you mean a, b or c?");
}

TEST_CASE("kinds that do not fit are refused for every key") {
  // "a map where a number is wanted, a number where a map is wanted, an unknown section"
  const std::vector<std::string> good = split_lines(sample::kGoodYaml);
  for (const KeyLine& line : keys_of(good)) {
    if (line.full == "data.valid") continue;  // takes a map
    std::vector<std::string> lines = good;
    lines[line.index] = std::string(line.indent, ' ') + line.key + ": {inner: 1}";
    INFO(line.full);
    CHECK_THAT(sample::error_of(joined(lines)), ContainsSubstring(line.full + ": expected"));
  }
  for (const char* section : {"run", "data", "model", "optimizer", "train", "checkpoint"})
    CHECK_THAT(sample::error_of(fmt::format("{}: 3\n", section)), ContainsSubstring("expected a section"));
  CHECK_THAT(sample::error_of("data:\n  valid: 3\n"), ContainsSubstring("data.valid: expected"));
  CHECK_THAT(sample::error_of(std::string(sample::kGoodYaml) + "extra:\n  key: 1\n"),
             ContainsSubstring("unknown key extra"));
}
