#include <cmath>
#include <limits>
#include <vector>

#include "base/check.h"
#include "base/dtype.h"
#include "base/hash.h"
#include "base/json_writer.h"
#include "base/narrow.h"
#include "base/units.h"
#include "support/catch.h"

using namespace esm;

TEST_CASE("json writer nests, separates and escapes") {
  JsonWriter json;
  json.begin_object().field("a", 1).field("b", std::vector<double>{0.1, 2}).key("c").begin_object();
  json.field("t", true).field("s", "x\"\n\x01é").end_object().field("bad", std::string("\xff")).end_object();
  CHECK(json.text() ==
        R"({"a": 1, "b": [0.10000000000000001, 2], "c": {"t": true, "s": "x\"\n\u0001é"}, "bad": "\ufffd"})");
}

TEST_CASE("json numbers survive a round trip and have no NaN") {
  JsonWriter json;
  json.begin_array().value(1.0 / 3).value(std::nan("")).value(std::numeric_limits<double>::infinity());
  json.value(std::numeric_limits<int64_t>::min()).value(std::numeric_limits<uint64_t>::max()).end_array();
  CHECK(json.text() == "[0.33333333333333331, null, null, -9223372036854775808, 18446744073709551615]");
}

TEST_CASE("indented json has a line an item") {
  JsonWriter json(2);
  json.begin_object().field("a", 1).key("b").begin_array().end_array().end_object();
  CHECK(json.text() == "{\n  \"a\": 1,\n  \"b\": []\n}");
}

TEST_CASE("numbers for people") {
  CHECK(human_bytes(640) == "640 B");
  CHECK(human_bytes(1536) == "1.5 KiB");
  CHECK(human_count(950) == "950");
  CHECK(human_count(12345) == "12.3k");
  CHECK(human_count(999999) == "1.00M");
  CHECK(human_duration(200) == "3 min 20 s");
  CHECK(human_duration(-1) == "?");
  CHECK(with_thousands(-1234567) == "-1,234,567");
  CHECK(with_thousands(12) == "12");
}

TEST_CASE("narrow refuses to lose a value") {
  CHECK(narrow<int>(int64_t{5}) == 5);
  CHECK_THROWS_AS(narrow<int32_t>(int64_t{1} << 40), InternalError);
  CHECK_THROWS_AS(narrow<uint32_t>(-1), InternalError);
  CHECK(round_up(130, 128) == 256);
  CHECK(round_up(128, 128) == 128);
}

TEST_CASE("check says expression, place and message") {
  try {
    ESM_CHECK(1 + 1 == 3, "sum was {}", 2);
    FAIL("no throw");
  } catch (const InternalError& e) {
    CHECK_THAT(e.what(),
               ContainsSubstring("1 + 1 == 3") && ContainsSubstring("text_test.cpp") && ContainsSubstring("sum was 2"));
  }
}

TEST_CASE("dtype names round trip") {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF8E4M3, DType::kU8, DType::kBool}) {
    DType back = DType::kI64;
    CHECK(parse_dtype(dtype_name(dtype), back));
    CHECK(back == dtype);
  }
  DType unused = DType::kI64;
  CHECK_FALSE(parse_dtype("F31", unused));
  CHECK(dtype_name(DType::kF4E2M1x2) == "F4_E2M1");
  CHECK_FALSE(parse_dtype("F4_E2M1", unused));
}

// Reference value of the xxHash specification for empty input, and equality of pieces and whole.
TEST_CASE("hash") {
  CHECK(hash_hex(std::string_view()) == "99aa06d3014798d86001c324468d497f");
  Hasher pieces;
  pieces.update(std::string_view("abc"));
  pieces.update(std::string_view("def"));
  CHECK(pieces.hex() == hash_hex(std::string_view("abcdef")));
  CHECK(pieces.hex() != hash_hex(std::string_view("abcdeg")));
}
