#include "checkpoint/manifest.h"

#include "support/catch.h"
#include "unit/checkpoint/fixtures.h"

namespace esm::checkpoint {
namespace {

Manifest sample() {
  Manifest manifest = Content(100).request().manifest;
  manifest.created = "2026-05-01T12:00:00Z";
  manifest.metric = 2.7182818284590451;
  manifest.kernels = {{"attention", "cudnn"}, {"device", "NVIDIA H200"}};
  manifest.schedule_json = R"({"kind":"esm2"})";
  manifest.files = {{.name = "model-00001-of-00001.safetensors", .bytes = 1234, .hash = std::string(32, 'a')}};
  manifest.tensors = {
      {.name = "a", .role = Role::kParameter, .dtype = DType::kF32, .shape = {2, 3}, .file = manifest.files[0].name},
      {.name = "a", .role = Role::kExpAvg, .dtype = DType::kF32, .shape = {2, 3}, .file = manifest.files[0].name}};
  return manifest;
}

std::string refusal(const std::string& text) {
  try {
    parse_manifest(text, "folder/manifest.json");
    return "";
  } catch (const CheckpointError& e) {
    CHECK_THAT(e.what(), ContainsSubstring("folder/manifest.json"));
    return e.what();
  }
}

TEST_CASE("a manifest survives the round trip") {
  const Manifest manifest = parse_manifest(manifest_text(sample()), "m");
  CHECK(manifest.metric == 2.7182818284590451);
  CHECK(manifest.data_position_json == sample().data_position_json);
  const std::string text = manifest_text(manifest);
  CHECK(parse_manifest(text, "m") == manifest);
  CHECK(manifest_text(parse_manifest(text, "m")) == text);
}

TEST_CASE("every flipped bit and every cut of a manifest is found") {
  const std::string text = manifest_text(sample());
  int64_t found = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = text;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
      found += refusal(damaged).empty() ? 0 : 1;
    }
  }
  CHECK(found == static_cast<int64_t>(text.size()) * 8);
  for (size_t n = 0; n < text.size(); ++n)
    if (refusal(text.substr(0, n)).empty()) FAIL("cut after " << n << " bytes accepted");
  CHECK_THAT(refusal(text + "\n"), ContainsSubstring("damaged"));
}

TEST_CASE("a newer format says so") {
  Manifest manifest = sample();
  manifest.format_version = kFormatVersion + 1;
  CHECK_THAT(refusal(manifest_text(manifest)), ContainsSubstring("use a newer esmtrain"));
  manifest.format_version = 0;
  CHECK_THAT(refusal(manifest_text(manifest)), ContainsSubstring("unknown"));
}

TEST_CASE("a stranger's manifest cannot lead out of its folder") {
  for (const char* name : {"../a", "/etc/passwd", "a/b", "..", ".", "", ".hidden", "a\\b", "a b", "manifest.json"}) {
    Manifest manifest = sample();
    for (TensorEntry& tensor : manifest.tensors) tensor.file = name;
    manifest.files[0].name = name;
    INFO(name);
    CHECK_THAT(refusal(manifest_text(manifest)), ContainsSubstring("not a plain file name"));
  }
  Manifest manifest = sample();
  manifest.files.push_back(manifest.files[0]);
  CHECK_THAT(refusal(manifest_text(manifest)), ContainsSubstring("twice"));
  manifest = sample();
  manifest.tensors[0].file = "elsewhere.safetensors";
  CHECK_THAT(refusal(manifest_text(manifest)), ContainsSubstring("not listed"));
  manifest = sample();
  manifest.tensors[1].role = Role::kParameter;
  CHECK_THAT(refusal(manifest_text(manifest)), ContainsSubstring("twice"));
  manifest = sample();
  manifest.files[0].bytes = -1;
  CHECK_THAT(refusal(manifest_text(manifest)), ContainsSubstring("non-negative"));
}

TEST_CASE("a stranger's manifest cannot exhaust the stack or the clock") {
  // Refused before the hash is looked at, so it need not be right.
  const auto with = [](const std::string& position) {
    std::string text = manifest_text(sample());
    const std::string own = "\"data_position\": ";
    return text.insert(text.find(own) + own.size(), position + ", \"x\": ");
  };
  CHECK_THAT(refusal(with(std::string(200000, '[') + std::string(200000, ']'))),
             ContainsSubstring("nested more than 64 deep"));
  std::string wide = "{";
  for (int i = 0; i < 10'001; ++i) wide += fmt::format("{}\"{}\":1", i == 0 ? "" : ",", i);
  CHECK_THAT(refusal(with(wide + "}")), ContainsSubstring("an object of more than 10000 members"));
}

TEST_CASE("names of step folders") {
  CHECK(step_folder_name(100) == "step-000000100");
  CHECK(parse_step_folder_name("step-000000100") == 100);
  CHECK(parse_step_folder_name(step_folder_name(12'345'678'901)) == 12'345'678'901);
  for (const char* other : {"step-100", "step-0000000100", "step-", "step-00000010x", "step--00000001",
                            "Step-000000100", "step-000000100.tmp-a-1-b", "step-99999999999999999999999"})
    CHECK_FALSE(parse_step_folder_name(other).has_value());
}

}  // namespace
}  // namespace esm::checkpoint
