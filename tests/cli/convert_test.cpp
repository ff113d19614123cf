// `esmtrain convert` through the built program: round trips, the key report, refusals with exit code and message.
#include <filesystem>

#include "base/files.h"
#include "cli/process.h"
#include "support/catch.h"

using esm::ScratchFolder;
using esm::test::Finished;

namespace {
namespace fs = std::filesystem;

const std::string kGolden = ESM_SOURCE_DIR "/tests/data/golden/";
const std::string kOddities = ESM_SOURCE_DIR "/tests/data/oddities/safetensors/";

Finished convert(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {ESM_EXE, "convert"});
  return esm::test::run(std::move(arguments));
}

void check_refused(const Finished& done, int exit_code, const std::string& words) {
  INFO(done.all());
  CHECK(done.exit_code == exit_code);
  CHECK(done.err.starts_with("esmtrain: error: "));
  CHECK_THAT(done.err, ContainsSubstring(words));
}

TEST_CASE("convert: NVIDIA and back, files byte-equal") {
  const ScratchFolder scratch("convert");
  const std::string native = scratch.path() + "/native", again = scratch.path() + "/again";
  for (const auto& [source, format] : {std::pair("nv_d16/new", "nvidia"), std::pair("nv_d16/old", "nvidia-old")}) {
    const Finished in = convert({kGolden + source, native, "--to", "native", "--force"});
    INFO(in.all());
    REQUIRE(in.exit_code == 0);
    CHECK_THAT(in.out, ContainsSubstring(std::string("(") + format + ", F32)") &&
                           ContainsSubstring("156,513 parameters") && ContainsSubstring("0 missing, 0 unexpected"));
    const Finished out = convert({native, again, "--to", format, "--force"});
    INFO(out.all());
    REQUIRE(out.exit_code == 0);
    CHECK(fs::file_size(again + "/config.json") > 300);
    if (std::string(format) == "nvidia")
      CHECK(esm::read_text_file(again + "/model.safetensors") ==
            esm::read_text_file(kGolden + source + "/model.safetensors"));
  }
  CHECK(fs::exists(native + "/manifest.json"));
}

TEST_CASE("convert: harmless tensors of a Hugging Face file are named once") {
  const ScratchFolder scratch("convert");
  const std::string out = scratch.path() + "/hf";
  const Finished done = convert({kOddities + "tiny_hf.safetensors", out, "--to", "hf"});
  INFO(done.all());
  REQUIRE(done.exit_code == 0);
  CHECK_THAT(done.out, ContainsSubstring("passed through: esm.embeddings.position_embeddings.weight\n") &&
                           ContainsSubstring("rotary_embeddings.inv_freq (2 tensors)\n"));
  CHECK(esm::read_text_file(out + "/model.safetensors") == esm::read_text_file(kOddities + "tiny_hf.safetensors"));
  check_refused(convert({kOddities + "tiny_hf.safetensors", out, "--to", "hf"}), 6, "or give --force");

  // A name that is taken: by nothing, by a file, by a folder of other things.
  const std::string empty = scratch.path() + "/empty", other = scratch.path() + "/other", file = other + "/notes";
  fs::create_directory(empty);
  fs::create_directory(other);
  esm::write_file_atomically(file, "notes");
  CHECK(convert({kOddities + "tiny_hf.safetensors", empty, "--to", "hf"}).exit_code == 0);
  CHECK(fs::exists(empty + "/config.json"));
  for (const std::string& taken : {file, other}) {
    check_refused(convert({kOddities + "tiny_hf.safetensors", taken, "--to", "hf"}), 6, "choose another name");
    check_refused(convert({kOddities + "tiny_hf.safetensors", taken, "--to", "hf", "--force"}), 6,
                  "choose another name");
  }
  CHECK(esm::read_text_file(file) == "notes");
}

TEST_CASE("convert: damaged files and wrong arguments are refused, and nothing is written") {
  const ScratchFolder scratch("convert");
  const std::string out = scratch.path() + "/out";
  check_refused(convert({kOddities + "truncated.safetensors", out, "--to", "hf"}), 6,
                "100184 bytes expected, the file has 99184");
  check_refused(convert({kOddities + "header_too_large.safetensors", out, "--to", "native"}), 6,
                "header of 18446744073709551615 bytes");
  check_refused(convert({kOddities + "empty.safetensors", out, "--to", "native"}), 6, "at least 8 bytes");
  check_refused(convert({scratch.path() + "/none", out, "--to", "hf"}), 6, "no such file or folder");
  check_refused(convert({scratch.path(), out, "--to", "hf"}), 6, "no .safetensors file");
  check_refused(convert({kGolden + "hf_d16", out, "--to", "onnx"}), 2, "onnx");
  check_refused(convert({kGolden + "hf_d16", out}), 2, "--to");
  check_refused(convert({kGolden + "hf_d16", out, "--to", "native", "--dtype", "bf16"}), 2,
                "native checkpoints hold fp32");
  CHECK(fs::is_empty(scratch.path()));
}

}  // namespace
