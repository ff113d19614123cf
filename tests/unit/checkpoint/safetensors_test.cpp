#include "checkpoint/safetensors.h"

#include <sys/stat.h>

#include <random>

#include "base/check.h"
#include "support/catch.h"
#include "unit/checkpoint/fixtures.h"

namespace esm::checkpoint {
namespace {

const std::string kOddities = std::string(ESM_SOURCE_DIR) + "/tests/data/oddities/safetensors/";

std::string file_of(const std::string& header, size_t data_bytes) {
  std::string content(8, '\0');
  for (size_t i = 0; i < 8; ++i) content[i] = static_cast<char>(header.size() >> (8 * i) & 0xff);
  return content + header + std::string(data_bytes, 'x');
}

std::string error_of(const std::string& content) {
  const ScratchFolder scratch("safetensors");
  const std::string path = scratch.path() + "/t.safetensors";
  put_file(path, content);
  try {
    const SafetensorsFile file(path);
    return "";
  } catch (const CheckpointError& e) {
    CHECK_THAT(e.what(), ContainsSubstring("t.safetensors"));
    return e.what();
  }
}

TEST_CASE("a file written is read back, aligned, and equals the reference implementation's") {
  const SafetensorsFile reference(kOddities + "tiny_hf.safetensors");
  CHECK(reference.metadata().at("format") == "pt");
  REQUIRE(reference.find("lm_head.bias") != nullptr);
  CHECK(reference.find("lm_head.bias")->shape == std::vector<int64_t>{33});
  CHECK(reference.find("no such") == nullptr);

  std::vector<TensorOut> tensors;
  for (const TensorRef& tensor : reference.tensors())
    tensors.push_back(
        {.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape, .bytes = tensor.bytes, .make = {}});
  std::reverse(tensors.begin(), tensors.end());
  const ScratchFolder scratch("safetensors");
  const std::string path = scratch.path() + "/again.safetensors";
  const WrittenFile written = write_safetensors(FileSystem::real(), path, tensors, {{"format", "pt"}});
  CHECK(read_text_file(path) == read_text_file(reference.path()));
  CHECK(written.hash == hash_file(path));
  CHECK(written.bytes == static_cast<int64_t>(fs::file_size(path)));
  CHECK_THROWS_AS(write_safetensors(FileSystem::real(), path, tensors, {}), CheckpointError);
}

TEST_CASE("element types, empty tensors and scalars") {
  const ScratchFolder scratch("safetensors");
  const std::vector<std::byte> data(64, std::byte{7});
  const auto bytes = [&](size_t n) { return std::span(data).first(n); };
  const std::vector<TensorOut> tensors{
      {.name = "u8", .dtype = DType::kU8, .shape = {3}, .bytes = bytes(3), .make = {}},
      {.name = "scalar", .dtype = DType::kF32, .shape = {}, .bytes = bytes(4), .make = {}},
      {.name = "empty", .dtype = DType::kBF16, .shape = {4, 0}, .bytes = {}, .make = {}},
      {.name = "made \"late\"", .dtype = DType::kI64, .shape = {2}, .bytes = {}, .make = [&] {
         return std::vector<std::byte>(16, std::byte{9});
       }}};
  const std::string path = scratch.path() + "/t.safetensors";
  write_safetensors(FileSystem::real(), path, tensors, {});
  const SafetensorsFile file(path);
  REQUIRE(file.tensors().size() == 4);
  CHECK(file.find("scalar")->shape.empty());
  CHECK(file.find("empty")->bytes.empty());
  CHECK(file.find("empty")->shape == std::vector<int64_t>{4, 0});
  CHECK(file.find("made \"late\"")->bytes[15] == std::byte{9});
  for (const TensorRef& tensor : file.tensors())
    CHECK(reinterpret_cast<uintptr_t>(tensor.bytes.data()) % static_cast<uintptr_t>(size_of(tensor.dtype)) == 0);
}

TEST_CASE("damaged files are refused with expected and real size") {
  for (const auto& [name, words] :
       {std::pair("empty.safetensors", "at least 8 bytes, this one has 0"),
        std::pair("header_too_large.safetensors", "header of 18446744073709551615 bytes, the file has 10"),
        std::pair("truncated.safetensors", "100184 bytes expected, the file has 99184")}) {
    INFO(name);
    try {
      const SafetensorsFile file(kOddities + name);
      FAIL("accepted");
    } catch (const CheckpointError& e) {
      CHECK_THAT(e.what(), ContainsSubstring(words));
      CHECK_THAT(e.what(), ContainsSubstring(name));
    }
  }
  CHECK_THROWS_AS(SafetensorsFile(kOddities + "no such file"), CheckpointError);
  CHECK_THROWS_AS(SafetensorsFile(kOddities), CheckpointError);
}

TEST_CASE("headers that lie are refused") {
  const auto entry = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return "{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
  };
  const std::string a = "\"a\":" + entry("F32", "[2]", "[0,8]");
  CHECK(error_of(file_of("{" + a + "}   ", 8)).empty());
  struct Case {
    std::string header;
    size_t data;
    std::string words;
  };
  const std::vector<Case> cases{
      {"{" + a + ",\"b\":" + entry("F32", "[2]", "[4,12]") + "}", 12, "overlaps"},
      {"{" + a + ",\"b\":" + entry("F32", "[1]", "[12,16]") + "}", 16, "gap"},
      {"{" + a + "," + a + "}", 8, "'a' stands there twice"},
      {"{" + a + "}", 9, "appended"},
      {"{" + a + "}", 7, "cut off"},
      {"{\"a\":" + entry("F32", "[3]", "[0,8]") + "}", 8, "takes 12 bytes, the header gives it 8"},
      {"{\"a\":" + entry("F32", "[-2]", "[0,8]") + "}", 8, "non-negative"},
      {"{\"a\":" + entry("F32", "[2.0]", "[0,8]") + "}", 8, "non-negative"},
      {"{\"a\":" + entry("F32", "[4611686018427387904,4611686018427387904]", "[0,8]") + "}", 8, "too large"},
      {"{\"a\":" + entry("F32", "[18446744073709551615]", "[0,8]") + "}", 8, "non-negative"},
      {"{\"a\":" + entry("F32", "[2]", "[8,0]") + "}", 8, "ends before it begins"},
      {"{\"a\":" + entry("F32", "[2]", "[0,8,9]") + "}", 8, "data_offsets"},
      {"{\"a\":" + entry("F33", "[2]", "[0,8]") + "}", 8, "unknown element type 'F33'"},
      {"{\"a\":{\"dtype\":\"F32\"}}", 0, "shape"},
      {"{\"a\":7}", 0, "wanted"},
      {"[]", 0, "not a JSON object"},
      {"{\"a\":", 0, "not JSON"},
      {"{\"__metadata__\":{\"n\":1}}", 0, "not text"},
      {"{\"__metadata__\":7}", 0, "not an object"},
      {std::string(200000, '['), 0, "nested more than 64 deep"},
      {"{\"a\":" + entry("F32", std::string(200000, '[') + std::string(200000, ']'), "[0,8]") + "}", 8, "nested"}};
  for (const Case& c : cases) {
    INFO(c.header.substr(0, 200));
    CHECK_THAT(error_of(file_of(c.header, c.data)), ContainsSubstring(c.words));
  }
  CHECK(error_of(file_of("{}", 0)).empty());
}

TEST_CASE("random damage to a file never crashes the reader") {
  const std::string sound = read_text_file(kOddities + "tiny_hf.safetensors").substr(0, 7000);
  const ScratchFolder scratch("safetensors");
  const std::string path = scratch.path() + "/t.safetensors";
  std::mt19937 random(1);
  const auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  int refused = 0;
  for (int trial = 0; trial < 1500; ++trial) {
    // Headers of a quarter of the length: the interesting bytes are hit often.
    std::string header =
        R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"b":{"dtype":"BF16","shape":[5],"data_offsets":[24,34]}})";
    for (size_t hits = 1 + below(4); hits > 0; --hits) {
      const size_t at = below(header.size());
      switch (below(3)) {
        case 0: header[at] = static_cast<char>(below(256)); break;
        case 1: header.erase(at, 1 + below(6)); break;
        default: header.insert(at, sound.substr(below(sound.size()), below(12))); break;
      }
    }
    std::string content = file_of(header, 34);
    if (below(8) == 0) content[below(8)] = static_cast<char>(below(256));
    put_file(path, content);
    try {
      const SafetensorsFile file(path);
      size_t sum = 0;
      for (const TensorRef& tensor : file.tensors())
        for (const std::byte b : tensor.bytes) sum += static_cast<size_t>(b);
      CHECK(sum <= 34u * 255u);
    } catch (const CheckpointError&) {
      ++refused;
    }
  }
  CHECK(refused > 1000);
}

TEST_CASE("a model in several files") {
  const ScratchFolder scratch("safetensors");
  const std::vector<std::byte> data(8, std::byte{1});
  const auto write = [&](const std::string& file, const std::vector<std::string>& names) {
    std::vector<TensorOut> tensors;
    for (const std::string& name : names)
      tensors.push_back({.name = name, .dtype = DType::kF32, .shape = {2}, .bytes = data, .make = {}});
    write_safetensors(FileSystem::real(), scratch.path() + "/" + file, tensors, {});
  };
  const auto index = [&](const std::string& text) {
    write_file_atomically(scratch.path() + "/model.safetensors.index.json", text);
  };
  const auto refusal = [&] {
    try {
      const SafetensorsSet set(scratch.path());
      return std::string();
    } catch (const CheckpointError& e) {
      return std::string(e.what());
    }
  };
  CHECK_THAT(refusal(), ContainsSubstring("no .safetensors file"));
  write("one.safetensors", {"a", "b"});
  write("two.safetensors", {"c"});
  const SafetensorsSet both(scratch.path());
  CHECK(both.tensors().size() == 3);
  REQUIRE(both.find("c") != nullptr);
  CHECK(both.find("d") == nullptr);
  CHECK(SafetensorsSet(scratch.path() + "/two.safetensors").tensors().size() == 1);

  write("three.safetensors", {"a"});
  CHECK_THAT(refusal(), ContainsSubstring("'a' stands in two files"));
  // The index says which files belong to the model.
  index(R"({"metadata":{},"weight_map":{"a":"one.safetensors","b":"one.safetensors","c":"two.safetensors"}})");
  CHECK(SafetensorsSet(scratch.path()).tensors().size() == 3);
  index(R"({"weight_map":{"c":"one.safetensors"}})");
  CHECK_THAT(refusal(), ContainsSubstring("promises tensor 'c'"));
  index(R"({"weight_map":{"c":"gone.safetensors"}})");
  CHECK_THAT(refusal(), ContainsSubstring("gone.safetensors"));
  index(R"({"weight_map":{"c":"../other/model.safetensors"}})");
  CHECK_THAT(refusal(), ContainsSubstring("no file of this folder"));
  fs::remove(scratch.path() + "/model.safetensors.index.json");
  // Without an index, model.safetensors is the model, and the others are not part of it.
  write("model.safetensors", {"z"});
  CHECK(SafetensorsSet(scratch.path()).tensors().size() == 1);
  CHECK(SafetensorsSet(scratch.path()).side_files().size() == 3);
  index(R"({"weight_map":7})");
  CHECK_THAT(refusal(), ContainsSubstring("weight_map"));
  index("{");
  CHECK_THAT(refusal(), ContainsSubstring("not JSON"));
  index("{\"weight_map\":" + std::string(200000, '[') + std::string(200000, ']') + "}");
  CHECK_THAT(refusal(), ContainsSubstring("nested more than 64 deep"));
}

TEST_CASE("a pipe in the place of a file is refused at once") {
  const ScratchFolder scratch("safetensors");
  REQUIRE(::mkfifo((scratch.path() + "/model.safetensors").c_str(), 0600) == 0);
  CHECK_THROWS_AS(SafetensorsSet(scratch.path()), CheckpointError);
  REQUIRE(::mkfifo((scratch.path() + "/model.safetensors.index.json").c_str(), 0600) == 0);
  CHECK_THROWS_AS(SafetensorsSet(scratch.path()), CheckpointError);
}

}  // namespace
}  // namespace esm::checkpoint
