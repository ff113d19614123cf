// Import of fair-esm's .pt files, against the same weights saved by transformers.
#include <fmt/core.h>

#include <filesystem>

#include "base/files.h"
#include "support/catch.h"
#include "support/model_files.h"
#include "support/zip_file.h"

namespace esm::train {
namespace {
using namespace test;
using namespace std::string_literals;

const std::string kFair = kData + "fair_esm/";

TEST_CASE("published and older files of fair-esm hold what the Hugging Face folder of the same model does") {
  const ModelSource hf = open_model(kFair + "hf");
  for (const char* name : {"tiny.pt", "older_fp16.pt"}) {
    CAPTURE(name);
    const ModelSource fair = open_model(kFair + name);
    CHECK(fair.format() == Format::kFairEsm);
    CHECK(fair.dtype() == (std::string(name) == "tiny.pt" ? DType::kF32 : DType::kF16));
    CHECK(fair.config().layers == 2);
    CHECK(fair.config().hidden == 8);
    CHECK(fair.config().heads == 2);
    CHECK(fair.config().ffn == 0);
    CHECK(fair.config().token_dropout);
    CHECK(fair.config().inv_freq == models::InvFreq::kFp16Rounded);
    CHECK(fair.inv_freq() == hf.inv_freq());
    CHECK(fair.parameter_count() == hf.parameter_count());
    REQUIRE(fair.tensors().size() == hf.tensors().size());
    for (const ModelTensor& tensor : hf.tensors()) {
      INFO(tensor.name);
      CHECK(fair.read(tensor.name) == hf.read(tensor.name));
    }
    CHECK(fair.has("contact.bias"));
    CHECK(fair.report().passed_through.size() == 2);  // rotary frequencies
  }
  const std::vector<std::string> notes = open_model(kFair + "tiny.pt").report().notes;
  REQUIRE(notes.size() == 1);
  CHECK_THAT(notes[0], ContainsSubstring("tiny-contact-regression.pt"));
}

TEST_CASE("fair-esm -> native -> Hugging Face: the tensors of transformers, byte for byte") {
  const ScratchFolder scratch("fair-esm");
  const std::string native = scratch.path() + "/native", out = scratch.path() + "/hf";
  convert(kFair + "tiny.pt", native, Format::kNative);
  CHECK(open_model(native).config().inv_freq == models::InvFreq::kFp16Rounded);
  const ExportResult result = convert(native, out, Format::kHf);
  CHECK(result.left_out.empty());
  const SafetensorsSet made(out), wanted(kFair + "hf");
  for (const TensorRef* tensor : wanted.tensors()) {
    INFO(tensor->name);
    if (tensor->name.ends_with("inv_freq")) continue;  // once there, for each layer here
    const TensorRef* other = made.find(published(tensor->name));
    REQUIRE(other != nullptr);
    CHECK(std::equal(tensor->bytes.begin(), tensor->bytes.end(), other->bytes.begin(), other->bytes.end()));
  }
  CHECK(open_model(out).config().inv_freq == models::InvFreq::kFp16Rounded);
  convert(kFair + "older_fp16.pt", scratch.path() + "/half", Format::kHf);
  CHECK(open_model(scratch.path() + "/half").dtype() == DType::kF16);
}

TEST_CASE("a .pt file without its contact head says so; what is no fair-esm model is refused by name") {
  const ScratchFolder scratch("fair-esm");
  fs::copy(kFair + "tiny.pt", scratch.path() + "/alone.pt");
  const ModelSource alone = open_model(scratch.path() + "/alone.pt");
  CHECK_FALSE(alone.has("contact.weight"));
  CHECK_THAT(alone.report().notes.at(0),
             ContainsSubstring("no contact head") && ContainsSubstring("alone-contact-regression.pt"));

  CHECK_THAT(refusal(kFair + "evil.pt"), ContainsSubstring(".system'") && ContainsSubstring("nothing of it was run"));
  CHECK_FALSE(fs::exists("pwned"));
  CHECK_THAT(refusal(kFair + "tiny-contact-regression.pt"), ContainsSubstring("does not say how large its model is"));
  CHECK_THAT(refusal(kFair + "old_format.pt"), ContainsSubstring("PyTorch before 1.6"));
  CHECK_THAT(refusal(kFair + "make.py"), ContainsSubstring(".pt file of fair-esm is wanted"));
  CHECK_THAT(refusal(scratch.path() + "/none.pt"), ContainsSubstring("no such file"));

  const auto word = [](const std::string& text) {
    std::string code = "X";
    code += static_cast<char>(text.size());
    code.append(3, '\0');
    return code += text;
  };
  const auto write = [&](const std::string& pickle) {
    write_file_atomically(scratch.path() + "/made.pt", stored_zip({{"made/data.pkl", "\x80\x02"s + pickle}}));
    return refusal(scratch.path() + "/made.pt");
  };
  CHECK_THAT(write("N."), ContainsSubstring("it holds no dict"));
  CHECK_THAT(write("}"s + word("state_dict") + "}s."),
             ContainsSubstring("no tensors under 'model' (found: state_dict)"));
  const std::string layers = word("encoder_layers") + "K\x02", width = word("encoder_embed_dim") + "K\x08",
                    heads = word("encoder_attention_heads") + "K\x02";
  const auto settings = [&](const std::string& items) {
    return write("}("s + word("args") + "}(" + items + "u" + word("model") + "}u.");
  };
  CHECK_THAT(settings(layers + width), ContainsSubstring("no encoder_attention_heads"));
  CHECK_THAT(settings(word("encoder_layers") + "J\x40\x42\x0f\0"s + width + heads),
             ContainsSubstring("no encoder_layers (a number from 1 to 10000 is wanted)"));
  CHECK_THAT(settings(layers + width + word("attention_heads") + "K\x03"), ContainsSubstring("8 with 3 heads"));
  CHECK_THAT(settings(layers + width + heads + word("emb_layer_norm_before") + "\x88"), ContainsSubstring("ESM-1b"));
  CHECK_THAT(settings(layers + width + heads + word("activation_fn") + word("relu")), ContainsSubstring("'relu'"));
  CHECK_THAT(settings(layers + width + heads), ContainsSubstring("not the tensors of a fair-esm ESM-2") &&
                                                   ContainsSubstring("missing: embed_tokens.weight"));
}

}  // namespace
}  // namespace esm::train
