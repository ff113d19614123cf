#include "train/inspect.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "support/catch.h"
#include "support/model_files.h"

using namespace esm;
using namespace esm::train;
using checkpoint::Verify;
using esm::test::kTinyHf;
using esm::test::Source;

namespace {

namespace fs = std::filesystem;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

std::string refusal(const std::string& path) {
  try {
    inspect_model(path, Verify::kSizes);
    return "";
  } catch (const CheckpointError& e) {
    return e.what();
  }
}

const TensorSummary& tensor(const std::vector<TensorSummary>& all, const std::string& name) {
  for (const TensorSummary& one : all)
    if (one.name == name) return one;
  fail<InternalError>("no tensor {}", name);
}

}  // namespace

TEST_CASE("figures of values: what is not finite is counted and does not spoil the rest") {
  const ValueSummary all = summarize(std::vector<float>{3, -4, 0, 1});
  CHECK(all.norm == Approx(std::sqrt(26.0)));
  CHECK(all.mean == 0);
  CHECK(all.abs_max == 4);
  CHECK(all.not_finite == 0);
  const ValueSummary some = summarize(std::vector<float>{3, kNan, -5, kInf, -kInf});
  CHECK(some.norm == Approx(std::sqrt(34.0)));
  CHECK(some.mean == -1);
  CHECK(some.abs_max == 5);
  CHECK(some.not_finite == 3);
  CHECK(summarize({}).norm == 0);
  CHECK(summarize(std::vector<float>{kNan}).mean == 0);
  // Squares beyond FP32 are no infinity.
  CHECK(summarize(std::vector<float>{3e38f}).norm == Approx(3e38));
}

TEST_CASE("the difference of two tensors") {
  const ValueDifference d =
      difference(std::vector<float>{1, 2, 0.0f, kNan, kInf, 5}, std::vector<float>{1, -2, -0.0f, kNan, 1, 8});
  CHECK(d.max_abs == 4);
  CHECK(d.norm == 5);
  CHECK(d.differing == 4);
  CHECK(d.not_finite == 2);
  CHECK(d.norm_a == Approx(std::sqrt(30.0)));
  CHECK(d.norm_b == Approx(std::sqrt(1 + 4 + 1 + 64.0)));
  CHECK(difference(std::vector<float>{kNan}, std::vector<float>{kNan}).differing == 0);
}

TEST_CASE("settings of any two versions are compared, each against what it said itself") {
  const std::string a = "seed: 5\nmodel: {layers: 6}\n", b = "seed: 6\nmodel: {layers: 3}\noptimizer: {lr: 0.5}\n";
  const std::string old = "seed: 5\ngone: 7\nmodel: {layers: 3}\n";
  const auto plain = compare_settings(a, b);
  REQUIRE(plain.size() == 3);
  CHECK(plain[0].key == "model.layers");
  CHECK(plain[0].a == "6");
  CHECK(plain[0].b == "3");
  CHECK(plain[1].key == "optimizer.lr");
  CHECK(plain[2].key == "seed");
  CHECK(compare_settings(b, b).empty());
  bool gone = false, absent = false;
  for (const SettingDifference& d : compare_settings(old, b)) {
    if (d.key == "gone") gone = d.a == "7" && !d.b.has_value();
    if (d.key == "optimizer.lr") absent = !d.a.has_value() && d.b.has_value();
    CHECK(d.key != "model.layers");
  }
  CHECK(gone);
  CHECK(absent);
  CHECK_THROWS_AS(compare_settings("a: [", old), CheckpointError);
}

TEST_CASE("a Hugging Face folder and a single file are described") {
  const Source source("hf_d16");
  const Inspection found = inspect_model(source.path, Verify::kContent);
  CHECK(found.format == Format::kHf);
  CHECK(found.model->layers == 3);
  CHECK(found.parameters == 156513);
  CHECK(found.weights.size() == 1);
  CHECK(found.weights.contains(DType::kF32));
  CHECK_FALSE(found.own.has_value());
  CHECK(found.problems.empty());
  REQUIRE(found.files.size() == 2);
  CHECK(found.files[0].name == "config.json");
  CHECK(found.files[1].bytes == static_cast<int64_t>(fs::file_size(source.path + "/model.safetensors")));
  CHECK(found.files[1].check == InspectedFile::Check::kNone);

  const Inspection single = inspect_model(kTinyHf, Verify::kSizes);
  CHECK(single.path == kTinyHf);
  CHECK(single.passed_through.size() == 3);
  const std::string text = inspect_text({.inspection = single, .tensors = {}, .other = {}});
  CHECK_THAT(text, ContainsSubstring("Hugging Face (EsmForMaskedLM)") && ContainsSubstring("3 tensors passed through"));
}

TEST_CASE("tensors are summarized as they are stored; E4M3 weights with their factor") {
  const Source source("hf_d16");
  const std::string codes = source.out("codes"), name = "esm.encoder.layer.0.intermediate.dense.weight";
  export_model(open_model(source.path), {.format = Format::kHf, .out = codes, .dtype = DType::kF8E4M3, .versions = {}});
  const auto plain = summarize_tensors(open_model(source.path)), rounded = summarize_tensors(open_model(codes));
  CHECK(plain.size() == checkpoint::SafetensorsSet(source.path).tensors().size());
  const TensorSummary& a = tensor(plain, name);
  const TensorSummary& b = tensor(rounded, name);
  CHECK(a.dtype == DType::kF32);
  CHECK(b.dtype == DType::kF8E4M3);
  CHECK(a.shape == b.shape);
  CHECK(b.values->norm == Approx(a.values->norm).epsilon(0.02));
  CHECK(b.values->abs_max == Approx(a.values->abs_max).epsilon(0.07));
  CHECK(inspect_model(codes, Verify::kSizes).weights.contains(DType::kF8E4M3));
}

TEST_CASE("models are compared across formats") {
  const Source source("hf_d16");
  const std::string native = source.out("native"), other = source.out("other");
  test::convert(source.path, native, Format::kNative);
  const Inspection a = inspect_model(source.path, Verify::kSizes), b = inspect_model(native, Verify::kSizes);
  const Comparison same = compare(a, b);
  CHECK_FALSE(same.whole_config);
  CHECK(same.settings.empty());
  CHECK(same.tensors.empty());
  CHECK(same.equal_tensors == static_cast<int64_t>(a.source->tensors().size()));

  fs::copy(source.path, other);
  test::rewrite(source.path, other + "/model.safetensors", [](auto& tensors) {
    checkpoint::TensorOut& norm = test::tensor_of(tensors, "esm.encoder.emb_layer_norm_after.bias");
    norm.make = [bytes = norm.bytes] {
      std::vector<std::byte> changed(bytes.begin(), bytes.end());
      const float value = 1000;
      std::memcpy(changed.data() + 8, &value, sizeof value);
      return changed;
    };
    norm.bytes = {};
  });
  const Inspection changed = inspect_model(other, Verify::kSizes);
  const Comparison found = compare(b, changed);
  REQUIRE(found.tensors.size() == 1);
  CHECK(found.tensors[0].name == "final_norm.bias");
  CHECK(found.tensors[0].values->differing == 1);
  CHECK(found.tensors[0].values->max_abs == Approx(1000).epsilon(0.01));

  const Comparison larger = compare(b, inspect_model(kTinyHf, Verify::kSizes));
  CHECK_FALSE(larger.settings.empty());
  CHECK_FALSE(larger.tensors.empty());
  const auto json = nlohmann::json::parse(inspect_json({.inspection = b, .tensors = {}, .other = {{"x", larger}}}));
  CHECK(json["diff"]["settings"].size() == larger.settings.size());
  CHECK(json["diff"]["other"] == "x");
  CHECK(json["format"] == "native");
}

TEST_CASE("weights only cannot be resumed, and say what they are good for; damage is named, not fatal") {
  const Source source("hf_d16");
  const std::string native = source.out("native");
  test::convert(source.path, native, Format::kNative);
  const Inspection found = inspect_model(native, Verify::kContent);
  REQUIRE(found.own.has_value());
  CHECK_FALSE(found.own->resume.possible);
  CHECK_THAT(found.own->resume.note, ContainsSubstring("weights only") && ContainsSubstring("--init_from " + native));
  CHECK(found.own->imported_from == "hf");
  CHECK(found.problems.empty());
  for (const InspectedFile& file : found.files) CHECK(file.check == InspectedFile::Check::kContent);

  std::string file;
  for (const InspectedFile& one : found.files)
    if (one.name.starts_with("model-")) file = native + "/" + one.name;
  std::string content = read_text_file(file);
  content.back() = static_cast<char>(content.back() ^ 1);
  fs::permissions(file, fs::perms::owner_write, fs::perm_options::add);
  write_file_atomically(file, content);
  CHECK(inspect_model(native, Verify::kSizes).problems.empty());  // the size is right
  const Inspection damaged = inspect_model(native, Verify::kContent);
  REQUIRE(damaged.problems.size() == 1);
  CHECK_THAT(damaged.problems[0], ContainsSubstring(file) && ContainsSubstring("damaged"));
  CHECK_FALSE(damaged.source.has_value());
  CHECK(damaged.parameters == 156513);  // from the manifest
  CHECK_THROWS_AS(compare(found, damaged), CheckpointError);
  CHECK_THAT(inspect_text({.inspection = damaged, .tensors = {}, .other = {}}), ContainsSubstring("DAMAGED"));

  fs::remove(file);
  CHECK_THAT(inspect_model(native, Verify::kSizes).problems.at(0), ContainsSubstring("is missing"));
}

TEST_CASE("what is no model is refused with its name") {
  const ScratchFolder scratch("inspect");
  CHECK_THAT(refusal(scratch.path() + "/none"), ContainsSubstring("none: no such file or folder"));
  CHECK_THAT(refusal(scratch.path()), ContainsSubstring("no .safetensors file"));
  fs::create_directories(scratch.path() + "/run/checkpoints");
  CHECK_THAT(refusal(scratch.path() + "/run"), ContainsSubstring("no complete checkpoint"));
  const std::string unfinished = scratch.path() + "/step-000000007.tmp-host-12-ab";
  fs::create_directories(unfinished);
  CHECK_THAT(refusal(unfinished), ContainsSubstring("never finished"));
}
