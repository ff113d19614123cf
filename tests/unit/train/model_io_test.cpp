#include "train/model_io.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/files.h"
#include "base/half.h"
#include "checkpoint/open_checkpoint.h"
#include "checkpoint/store.h"
#include "support/catch.h"
#include "support/model_files.h"

namespace esm::train {
namespace {
using namespace test;

TEST_CASE("golden models -> native -> the same format: every tensor byte-equal") {
  for (const auto& [golden, format] :
       {std::pair("hf_d16", Format::kHf), std::pair("hf_d24", Format::kHf), std::pair("nv_d16/new", Format::kNvidia),
        std::pair("nv_d16/old", Format::kNvidiaOld)}) {
    INFO(golden);
    const Source source(golden);
    CHECK(open_model(source.path).format() == format);
    convert(source.path, source.out("native"), Format::kNative);
    CHECK(open_model(source.out("native")).format() == Format::kNative);
    convert(source.out("native"), source.out("again"), format);
    check_equal_sets(source.path, source.out("again"));
    // config.json says the same too.
    const auto before = nlohmann::json::parse(read_text_file(source.path + "/config.json"));
    const auto after = nlohmann::json::parse(read_text_file(source.out("again") + "/config.json"));
    for (const auto& [key, value] : before.items()) {
      INFO(key);
      CHECK(after.at(key) == value);
    }
  }
}

TEST_CASE("an export is the file that its source was, up to the spelling of names") {
  // Both sides in published spelling: the whole file is equal, not only the tensors.
  const Source source("nv_d16/new");
  convert(source.path, source.out("native"), Format::kNative);
  convert(source.out("native"), source.out("again"), Format::kNvidia);
  CHECK(read_text_file(source.path + "/model.safetensors") ==
        read_text_file(source.out("again") + "/model.safetensors"));
}

TEST_CASE("NVIDIA -> Hugging Face -> NVIDIA, and both generations: every tensor byte-equal") {
  const Source source("nv_d16/new");
  const ExportResult result = convert(source.path, source.out("hf"), Format::kHf);
  REQUIRE(result.notes.size() == 1);
  CHECK_THAT(result.notes[0], ContainsSubstring("gelu_tanh"));
  // A fresh Hugging Face folder has the rotary frequencies that transformers looks for.
  CHECK(open_model(source.out("hf")).inv_freq().size() == 8);
  CHECK(open_model(source.out("hf")).config().inv_freq == models::InvFreq::kFp32);
  convert(source.out("hf"), source.out("nv"), Format::kNvidia);
  check_equal_sets(source.path, source.out("nv"));
  convert(source.out("nv"), source.out("old"), Format::kNvidiaOld);
  const Source old("nv_d16/old");
  const SafetensorsSet made(source.out("old")), wanted(old.path);
  for (const TensorRef* tensor : made.tensors()) {
    const TensorRef* other = wanted.find(tensor->name);
    INFO(tensor->name);
    REQUIRE(other != nullptr);
    CHECK(std::equal(tensor->bytes.begin(), tensor->bytes.end(), other->bytes.begin(), other->bytes.end()));
  }
  CHECK(made.tensors().size() + 14 == wanted.tensors().size());  // 12 _extra_state, inv_freq, the tied decoder
}

TEST_CASE("rows of the NVIDIA layout are where they belong") {
  // The golden model in both layouts holds the same function; here the rule itself: row a*3d + j*d + i is row a*d + i
  // of q, k or v.
  const Source source("nv_d16/new");
  const ModelSource model = open_model(source.path);
  const std::vector<float> native = model.read("layers.1.attention.qkv.bias");
  const SafetensorsSet set(source.path);
  const TensorRef& fused = *set.find("model.encoder.layers.1.self_attention.layernorm_qkv.bias");
  const size_t heads = 4, d = 16, hidden = 64;
  REQUIRE(native.size() == 3 * hidden);
  for (size_t a = 0; a < heads; ++a)
    for (size_t j = 0; j < 3; ++j)
      for (size_t i = 0; i < d; ++i) {
        float value = 0;
        std::memcpy(&value, fused.bytes.data() + 4 * (a * 3 * d + j * d + i), 4);
        CHECK(native[j * hidden + a * d + i] == value);
      }
  CHECK(model.config().activation == models::Activation::kGeluTanh);
}

TEST_CASE("what an import says of a model") {
  const ModelSource model = open_model(kTinyHf);
  CHECK(model.format() == Format::kHf);
  CHECK(model.config().layers == 2);
  CHECK(model.config().hidden == 16);
  CHECK(model.config().ffn_size() == 64);
  CHECK(model.config().activation == models::Activation::kGeluErf);
  CHECK(model.parameter_count() == 33 * 16 + 2 * (12 * 16 * 16 + 13 * 16) + 2 * 16 + 16 * 16 + 16 + 2 * 16 + 33);
  CHECK(model.report().passed_through.size() == 3);  // position embeddings, inv_freq of two layers
  CHECK(model.inv_freq().size() == 2);
  CHECK(model.has("contact.weight"));
  CHECK(model.read("contact.weight").size() == 8);
  CHECK(model.tensors().size() == 1 + 2 * 12 + 2 + 5 + 2);
  std::vector<float> wrong_size(7);
  CHECK_THROWS_AS(model.copy_to("head.bias", wrong_size), InternalError);
  CHECK_THROWS_AS(model.read("no such"), CheckpointError);
  // q, k, v stand one below the other.
  const SafetensorsSet set(kTinyHf);
  const std::vector<float> qkv = model.read("layers.0.attention.qkv.weight");
  const TensorRef& key = *set.find("esm.encoder.layer.0.attention.self.key.weight");
  CHECK(std::memcmp(qkv.data() + 16 * 16, key.bytes.data(), key.bytes.size()) == 0);
}

TEST_CASE("tiny_hf: export and import again, bit-exact, extras included") {
  const ScratchFolder scratch("model-io");
  convert(kTinyHf, scratch.path() + "/native", Format::kNative);
  convert(scratch.path() + "/native", scratch.path() + "/hf", Format::kHf);
  check_equal_sets(kTinyHf, scratch.path() + "/hf");
  CHECK(read_text_file(kTinyHf) == read_text_file(scratch.path() + "/hf/model.safetensors"));
  for (const char* name : {"config.json", "vocab.txt", "tokenizer_config.json", "special_tokens_map.json"})
    CHECK(fs::exists(scratch.path() + "/hf/" + name));
  CHECK(std::ranges::count(read_text_file(scratch.path() + "/hf/vocab.txt"), '\n') == 32);
}

TEST_CASE("FP16 and BF16 weights come back in their own type") {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const Source source("hf_d16");
    const ExportOptions options{.format = Format::kHf, .out = source.out("half"), .dtype = dtype, .versions = {}};
    const ExportResult half = export_model(open_model(source.path), options);
    CHECK(half.dtype == dtype);
    CHECK(open_model(source.out("half")).dtype() == dtype);
    convert(source.out("half"), source.out("native"), Format::kNative);
    const ExportResult again = convert(source.out("native"), source.out("again"), Format::kHf);
    CHECK(again.dtype == dtype);
    check_equal_sets(source.out("half"), source.out("again"));
    // Padding of the old NVIDIA layout is the lowest finite value of the type.
    convert(source.out("native"), source.out("old"), Format::kNvidiaOld);
    const SafetensorsSet old(source.out("old"));
    uint16_t bits = 0;
    std::memcpy(&bits, old.find("lm_head.decoder.bias")->bytes.data() + 2 * 33, 2);
    CHECK(bits == (dtype == DType::kF16 ? 0xfbff : 0xff7f));
    // Asked for FP32, one gets it.
    export_model(open_model(source.out("native")),
                 {.format = Format::kHf, .out = source.out("wide"), .dtype = DType::kF32, .versions = {}});
    CHECK(open_model(source.out("wide")).read("head.bias") == open_model(source.out("half")).read("head.bias"));
  }
}

TEST_CASE("one tensor of another element type keeps it") {
  const Source source("hf_d16");
  const std::vector<std::byte> bias(66, std::byte{0x3c});
  rewrite(model_file("hf_d16"), source.path + "/model.safetensors", [&](std::vector<TensorOut>& tensors) {
    TensorOut& tensor = tensor_of(tensors, "lm_head.bias");
    tensor.dtype = DType::kBF16;
    tensor.bytes = bias;
  });
  convert(source.path, source.out("native"), Format::kNative);
  convert(source.out("native"), source.out("again"), Format::kHf);
  check_equal_sets(source.path, source.out("again"));
}

TEST_CASE("every FP16 and BF16 value survives the way to FP32 and back; rounding is to nearest even") {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    if (fp16_from_float(float_from_fp16(half)) != half) FAIL("FP16 " << bits);
    if (bf16_from_float(float_from_bf16(half)) != half) FAIL("BF16 " << bits);
  }
  CHECK(fp16_from_float(1.0f + 0x1p-11f) == 0x3c00);
  CHECK(fp16_from_float(1.0f + 3 * 0x1p-11f) == 0x3c02);
  CHECK(fp16_from_float(1.0f + 0x1p-11f + 0x1p-20f) == 0x3c01);
  CHECK(fp16_from_float(65519.0f) == 0x7bff);
  CHECK(fp16_from_float(65520.0f) == 0x7c00);
  CHECK(fp16_from_float(-0x1p-24f * 1.5f) == 0x8002);
  CHECK(fp16_from_float(0x1p-25f) == 0x0000);
  CHECK(fp16_from_float(0x1.ffbp-15f) == 0x03ff);
  CHECK(fp16_from_float(0x1.ffcp-15f) == 0x0400);
  CHECK(bf16_from_float(1.0f + 0x1p-8f) == 0x3f80);
  CHECK(bf16_from_float(1.0f + 3 * 0x1p-8f) == 0x3f82);
  CHECK(float_from_fp16(0x3555) == 0.333251953125f);
}

TEST_CASE("a decoder that is stored is kept, one that differs is refused") {
  const Source source("hf_d16");
  std::vector<std::byte> other;
  rewrite(model_file("hf_d16"), source.path + "/model.safetensors", [&](std::vector<TensorOut>& tensors) {
    TensorOut decoder = tensor_of(tensors, "esm.embeddings.word_embeddings.weight");
    other.assign(decoder.bytes.begin(), decoder.bytes.end());
    decoder.name = "lm_head.decoder.weight";
    tensors.push_back(decoder);
  });
  convert(source.path, source.out("native"), Format::kNative);
  convert(source.out("native"), source.out("again"), Format::kHf);
  check_equal_sets(source.path, source.out("again"));
  other[5] ^= std::byte{1};
  rewrite(model_file("hf_d16"), source.path + "/model.safetensors", [&](std::vector<TensorOut>& tensors) {
    TensorOut decoder = tensor_of(tensors, "esm.embeddings.word_embeddings.weight");
    decoder.name = "lm_head.decoder.weight";
    decoder.bytes = other;
    tensors.push_back(decoder);
  });
  CHECK_THAT(refusal(source.path), ContainsSubstring("untied decoder is not supported"));
}

TEST_CASE("several files with an index") {
  const Source source("hf_d16");
  export_model(
      open_model(source.path),
      {.format = Format::kHf, .out = source.out("parts"), .dtype = {}, .max_file_bytes = 100'000, .versions = {}});
  CHECK(fs::exists(source.out("parts") + "/model.safetensors.index.json"));
  CHECK(SafetensorsSet(source.out("parts")).files().size() >= 6);
  check_equal_sets(source.path, source.out("parts"));
  convert(source.out("parts"), source.out("one"), Format::kHf);
  check_equal_sets(source.path, source.out("one"));
  fs::remove(source.out("parts") + "/model-00002-of-0000" +
             std::to_string(SafetensorsSet(source.out("parts")).files().size()) + ".safetensors");
  CHECK_THAT(refusal(source.out("parts")), ContainsSubstring("model-00002-of-"));
}

TEST_CASE("files beside the model come back under their name") {
  const ScratchFolder scratch("model-io");
  const std::string folder = kData + "golden/hf_d16";  // with io.safetensors
  const ModelSource model = open_model(folder);
  REQUIRE(model.report().notes.size() == 1);
  CHECK_THAT(model.report().notes[0], ContainsSubstring("io.safetensors is no part of the model"));
  CHECK(model.report().passed_through.size() == 1);
  convert(folder, scratch.path() + "/native", Format::kNative);
  CHECK(open_model(scratch.path() + "/native").report().passed_through.size() == 1);
  convert(scratch.path() + "/native", scratch.path() + "/hf", Format::kHf);
  check_equal_sets(folder, scratch.path() + "/hf");
  check_equal_sets(folder + "/io.safetensors", scratch.path() + "/hf/io.safetensors");
  // A second copy of the model, or damage, is left out and said so.
  fs::copy(model_file("hf_d16"), scratch.path() + "/hf/other.safetensors");
  std::ofstream(scratch.path() + "/hf/broken.safetensors") << "x";
  const ModelSource again = open_model(scratch.path() + "/hf");
  CHECK(again.report().notes.size() == 3);
  CHECK(again.passthrough().size() == model.passthrough().size());
}

TEST_CASE("files that do not fit are refused with names") {
  const Source source("hf_d16");
  const std::string file = source.path + "/model.safetensors";
  // Another size: the first differing shape.
  fs::remove(file);
  fs::copy(model_file("hf_d24"), file);
  CHECK_THAT(refusal(source.path),
             ContainsSubstring("'esm.embeddings.word_embeddings.weight' is [33, 96], the model of its "
                               "config.json has [33, 64]"));
  fs::remove(file);
  fs::copy(model_file("nv_d16/new"), file);
  CHECK_THAT(refusal(source.path), ContainsSubstring("nv_esm"));
  rewrite(model_file("hf_d16"), file, [](std::vector<TensorOut>& tensors) {
    std::erase_if(tensors, [](const TensorOut& tensor) { return tensor.name == "lm_head.dense.bias"; });
    tensor_of(tensors, "lm_head.bias").name = "lm_head.bais";
  });
  CHECK_THAT(refusal(source.path),
             ContainsSubstring("2 missing: lm_head.dense.bias, lm_head.bias; 1 unexpected: lm_head.bais"));
  rewrite(model_file("hf_d16"), file, [](std::vector<TensorOut>& tensors) {
    TensorOut copy = tensor_of(tensors, "lm_head.layer_norm.weight");
    copy.name = "lm_head.layer_norm.gamma";
    tensors.push_back(copy);
  });
  CHECK_THAT(refusal(source.path), ContainsSubstring("two spellings"));
  const std::vector<std::byte> wide(33 * 8);
  rewrite(model_file("hf_d16"), file, [&](std::vector<TensorOut>& tensors) {
    TensorOut& tensor = tensor_of(tensors, "lm_head.bias");
    tensor.dtype = DType::kF64;
    tensor.bytes = wide;
  });
  CHECK_THAT(refusal(source.path), ContainsSubstring("'lm_head.bias' is F64"));
  rewrite(model_file("hf_d16"), file, [](std::vector<TensorOut>& tensors) {
    std::erase_if(tensors, [](const TensorOut& tensor) { return tensor.name.ends_with("regression.bias"); });
  });
  CHECK_THAT(refusal(source.path), ContainsSubstring("contact head lacks"));
  for (const char* name : {"truncated", "header_too_large", "empty"})
    CHECK_THAT(refusal(kData + "oddities/safetensors/" + name + ".safetensors"), ContainsSubstring(name));
  CHECK_THAT(refusal(source.out("nothing")), ContainsSubstring("no such file or folder"));
  CHECK_THAT(refusal(source.path + "/config.json"), ContainsSubstring("safe_serialization"));
  fs::remove(source.path + "/config.json");
  CHECK_THAT(refusal(source.path), ContainsSubstring("no config.json"));
}

TEST_CASE("a config.json of something else is refused, naming the key") {
  const Source source("hf_d16");
  const std::string path = source.path + "/config.json";
  const auto sound = nlohmann::json::parse(read_text_file(path));
  for (const auto& [key, value] : {std::pair<std::string, nlohmann::json>("position_embedding_type", "absolute"),
                                   {"emb_layer_norm_before", true},
                                   {"vocab_size", 30},
                                   {"model_type", "bert"},

                                   {"hidden_size", -64},
                                   {"hidden_size", "64"},
                                   {"num_hidden_layers", nullptr},
                                   {"num_hidden_layers", 1e300},
                                   {"num_hidden_layers", 10'001},
                                   {"num_hidden_layers", 1'000'000},
                                   {"num_hidden_layers", uint64_t{1} << 63 | 2},
                                   {"hidden_size", 1'000'001},
                                   {"num_attention_heads", 1'000'001},
                                   {"intermediate_size", 10'000'001},
                                   {"tie_word_embeddings", false},
                                   {"rope_theta", 5e5},
                                   {"layer_norm_eps", 0.0},
                                   {"token_dropout", 1},
                                   {"is_folding_model", true}}) {
    auto changed = sound;
    changed[key] = value;
    std::ofstream(path) << changed;
    INFO(changed[key]);
    CHECK_THAT(refusal(source.path), ContainsSubstring("config.json: '" + key + "'"));
  }
  // A million layers would take gigabytes for their names alone.
  auto deep = sound;
  deep["num_hidden_layers"] = 1'000'000;
  std::ofstream(path) << deep;
  CHECK_THAT(refusal(source.path), ContainsSubstring("is 1000000; a number from 1 to 10000 is wanted"));
  deep["num_hidden_layers"] = 10'000;
  std::ofstream(path) << deep;
  CHECK_THAT(refusal(source.path), ContainsSubstring("[1, 12], the model of its config.json has [1, 40000]"));
  auto odd_heads = sound;
  odd_heads["num_attention_heads"] = 5;
  std::ofstream(path) << odd_heads;
  CHECK_THAT(refusal(source.path), ContainsSubstring("a multiple of 2 * num_attention_heads is wanted"));
  std::ofstream(path) << "[1]";
  CHECK_THAT(refusal(source.path), ContainsSubstring("not a JSON object"));
}

TEST_CASE("rotary frequencies of the file are recognised") {
  const auto rule_with = [](auto change) {
    const Source source("hf_d16");
    std::vector<float> values;
    std::vector<std::byte> bytes(32);
    for (int i = 0; i < 8; ++i) values.push_back(change(1.0f / std::pow(10000.0f, static_cast<float>(2 * i) / 16.0f)));
    std::memcpy(bytes.data(), values.data(), 32);
    rewrite(model_file("hf_d16"), source.path + "/model.safetensors", [&](std::vector<TensorOut>& tensors) {
      tensor_of(tensors, "esm.encoder.layer.*.attention.self.rotary_embeddings.inv_freq").bytes = bytes;
    });
    convert(source.path, source.out("native"), Format::kNative);
    const ModelSource native = open_model(source.out("native"));
    CHECK(native.inv_freq() == values);
    // NVIDIA's model computes them itself: that is said, beside the other activation.
    if (native.config().inv_freq == models::InvFreq::kFp16Rounded)
      CHECK(convert(source.out("native"), source.out("nv"), Format::kNvidia).notes.size() == 2);
    return native.config().inv_freq;
  };
  CHECK(rule_with([](float x) { return x; }) == models::InvFreq::kFp32);
  CHECK(rule_with([](float x) { return float_from_fp16(fp16_from_float(x)); }) == models::InvFreq::kFp16Rounded);
  CHECK(rule_with([](float x) { return 2 * x; }) == models::InvFreq::kFile);
  CHECK(open_model(kData + "golden/hf_d24").config().inv_freq == models::InvFreq::kFp32);
}

TEST_CASE("run folders: the best checkpoint, else the newest; exports of trained weights are FP32") {
  const Source source("hf_d16");
  const ModelSource model = open_model(source.path);
  const std::string run = source.out("run");
  checkpoint::CheckpointStore store(run + "/checkpoints", {.retention = {.keep_last = 9}, .report = {}});
  CHECK_THAT(refusal(run), ContainsSubstring("no complete checkpoint"));
  convert(source.path, source.out("native"), Format::kNative);
  const checkpoint::OpenCheckpoint native(source.out("native"));
  checkpoint::SaveRequest request;
  request.manifest = native.manifest();
  request.manifest.config_yaml = "seed: 1\n";
  std::vector<std::vector<std::byte>> moments;
  for (const ModelTensor& tensor : model.tensors()) {
    const TensorRef& ref = native.tensor(checkpoint::Role::kParameter, tensor.name);
    request.parameters.push_back(
        {.name = tensor.name, .dtype = DType::kF32, .shape = tensor.shape, .bytes = ref.bytes, .make = {}});
  }
  request.exp_avg = request.exp_avg_sq = request.parameters;
  request.passthrough = model.passthrough();
  for (const auto& [step, metric] : {std::pair<int64_t, double>(10, 2.9), {20, 2.7}, {30, 2.8}}) {
    request.manifest.step = step;
    if (step > 10)
      request.manifest.metric = metric;
    else
      request.manifest.metric.reset();
    store.save(request);
    if (step == 10) CHECK(open_model(run).step() == 10);
  }
  CHECK(open_model(run).step() == 20);
  CHECK(open_model(run + "/checkpoints").step() == 20);
  CHECK(open_model(store.step_path(30)).step() == 30);
  CHECK(open_model(run).dtype() == DType::kF32);
  for (const char* line : {"layers: 1000000\n", "hidden: 2000000\n", "heads: 2000000\n", "ffn: 20000000\n"}) {
    ++request.manifest.step;
    request.manifest.model_yaml = line;
    CHECK_THAT(refusal(store.save(request).path),
               ContainsSubstring(": model:1:") && ContainsSubstring("expected from"));
  }
  convert(run, source.out("again"), Format::kHf);
  check_equal_sets(source.path, source.out("again"));
  // Weights only: the moments stay behind.
  convert(run, source.out("weights"), Format::kNative);
  CHECK_FALSE(checkpoint::OpenCheckpoint(source.out("weights")).has_optimizer());
  CHECK(open_model(source.out("weights")).step() == 20);
  // Another kind of model is refused.
  request.manifest.step = 40;
  request.manifest.metric = 0.1;
  request.manifest.model_kind = "affinity";
  store.save(request);
  CHECK_THAT(refusal(run), ContainsSubstring("kind 'affinity'"));
}

TEST_CASE("an existing folder is replaced only with force, and only if it is a model") {
  const Source source("hf_d16");
  const std::string out = source.out("out");
  convert(source.path, out, Format::kHf);
  CHECK_THROWS_AS(convert(source.path, out, Format::kNative), CheckpointError);
  CHECK(fs::exists(out + "/vocab.txt"));
  convert(source.path, out + "/", Format::kNative, true);
  CHECK(fs::exists(out + "/manifest.json"));
  CHECK_FALSE(fs::exists(out + "/vocab.txt"));
  fs::create_directory(source.out("precious"));
  std::ofstream(source.out("precious") + "/thesis.tex") << "x";
  CHECK_THROWS_AS(convert(source.path, source.out("precious"), Format::kHf, true), CheckpointError);
  CHECK(fs::exists(source.out("precious") + "/thesis.tex"));
  // Onto itself: read before it goes.
  convert(source.path, source.path, Format::kHf, true);
  check_equal_sets(model_file("hf_d16"), source.path);
  for (const auto& entry : fs::directory_iterator(source.scratch.path()))
    CHECK(entry.path().string().find(".tmp-") == std::string::npos);
}

TEST_CASE("what a format has no place for is named") {
  const Source source("hf_d16");
  convert(source.path, source.out("native"), Format::kNative);
  const ExportResult result = convert(source.out("native"), source.out("nv"), Format::kNvidia);
  CHECK(result.left_out == std::vector<std::string>{"contact.weight", "contact.bias",
                                                    "esm.encoder.layer.*.attention.self.rotary_embeddings.inv_freq"});
  REQUIRE(result.notes.size() == 1);
  CHECK_THAT(result.notes[0], ContainsSubstring("gelu_erf"));
  const auto config = nlohmann::json::parse(read_text_file(source.out("nv") + "/config.json"));
  CHECK(config.at("model_type") == "nv_esm");
  CHECK(config.at("padded_vocab_size").is_null());
}

}  // namespace
}  // namespace esm::train
