#include "config/number.h"

#include <bit>
#include <cmath>
#include <limits>

#include "base/files.h"
#include "sample_config.h"
#include "support/catch.h"

using esm::config::format_real;
using esm::config::number_hint;
using esm::config::parse_integer;
using esm::config::parse_real;

TEST_CASE("real numbers are read as written or refused") {
  struct Row {
    std::string_view text;
    double value;
  };
  for (const auto& [text, value] : {Row{"1e-4", 0.0001}, Row{"1.0e-4", 0.0001}, Row{"1E-4", 0.0001}, Row{".5", 0.5},
                                    Row{"2.", 2.0}, Row{"+0.001", 0.001}, Row{"-1e-4", -0.0001}, Row{"1e6", 1e6},
                                    Row{"0", 0.0}, Row{"5e-324", 5e-324}, Row{"1e+02", 100.0}, Row{"1e0007", 1e7}}) {
    INFO(text);
    CHECK(parse_real(text) == value);
  }
  CHECK(std::signbit(parse_real("-0").value()));
  for (const std::string_view text :
       {"",       " ",    "+",     "-",   ".",   "e5",  "1e",   "1e+",   "1e-+5",
        "1_0",    "1,0",  "1e-4x", "x1",  "nan", "inf", ".inf", "1e999", "-1e999",
        "1e-999", "true", "0x10",  "007", "--1", "1 ",  " 1",   "1.2.3", "1e99999999999999999999"}) {
    INFO(text);
    CHECK_FALSE(parse_real(text));
  }
}

TEST_CASE("integers are exact") {
  CHECK(parse_integer("1e6") == 1000000);
  CHECK(parse_integer("2.") == 2);
  CHECK(parse_integer("1.50e1") == 15);
  CHECK(parse_integer("1200e-2") == 12);
  CHECK(parse_integer("-0") == 0);
  CHECK(parse_integer("0e99") == 0);
  CHECK(parse_integer("9223372036854775807") == std::numeric_limits<int64_t>::max());
  CHECK(parse_integer("-9223372036854775808") == std::numeric_limits<int64_t>::min());
  CHECK(parse_integer("9007199254740993") == 9007199254740993);  // not a double
  for (const std::string_view text : {"9223372036854775808", "-9223372036854775809", "1e19", "1e30", "1.5", "15e-2",
                                      "1e100000", "1e-100000", "", "abc"}) {
    INFO(text);
    CHECK_FALSE(parse_integer(text));
  }
}

TEST_CASE("doubles survive being written, bit for bit") {
  int checked = 0;
  for (uint64_t i = 0; checked < 20000; ++i) {
    const uint64_t bits = (i * 0x9E3779B97F4A7C15ULL) ^ (i << 40);
    const auto value = std::bit_cast<double>(bits);
    if (!std::isfinite(value)) continue;
    ++checked;
    const auto back = parse_real(format_real(value));
    REQUIRE(back.has_value());
    REQUIRE(std::bit_cast<uint64_t>(*back) == bits);
  }
  CHECK(format_real(1e-4) == "0.0001");
  CHECK(format_real(0.1) == "0.1");
  CHECK_THROWS_AS(format_real(std::nan("")), esm::InternalError);
}

TEST_CASE("hints say how to write the number") {
  CHECK_THAT(number_hint("100_000"), ContainsSubstring("write 100000"));
  CHECK_THAT(number_hint("1,000"), ContainsSubstring("write 1000"));
  CHECK_THAT(number_hint("007"), ContainsSubstring("octal"));
  CHECK_THAT(number_hint("1e999"), ContainsSubstring("range"));
  CHECK(number_hint("abc").empty());
  CHECK(number_hint("12x").empty());
}

TEST_CASE("every row of the value table has its documented outcome") {
  // number_values.tsv: text of the value, tab, what is expected. Our policy where it leaves a choice: refuse.
  const std::string table = esm::read_text_file(ESM_SOURCE_DIR "/tests/data/oddities/config/number_values.tsv");
  int rows = 0;
  for (size_t start = 0; start < table.size();) {
    const size_t end = table.find('\n', start);
    const std::string line = table.substr(start, end - start);
    start = end + 1;
    if (line.starts_with('#')) continue;
    ++rows;
    const std::string text = line.substr(0, line.find('\t'));
    const std::string expected = line.substr(line.find('\t') + 1);
    INFO(line);
    const std::string error = sample::error_of("optimizer:\n  lr: " + text + "\n");
    if (text == "0") {
      CHECK_THAT(sample::error_of("data:\n  tokens_per_batch: 0\n"), ContainsSubstring("found 0"));
      CHECK(sample::error_of("optimizer:\n  weight_decay: 0\n").empty());
    } else if (expected.find("eject") != std::string::npos) {
      CHECK_THAT(error, ContainsSubstring("x.yaml:2: optimizer.lr: expected"));
    } else {
      CHECK(error.empty());
      sample::Config c;
      esm::config::load_text(c, "optimizer:\n  lr: " + text + "\n", "x.yaml");
      CHECK(c.optimizer.lr == std::stod(expected));
    }
  }
  CHECK(rows == 20);
  sample::Config c;
  esm::config::load_text(c, "train:\n  max_steps: 1e6\n", "x.yaml");
  CHECK(c.train.max_steps == 1000000);
}
