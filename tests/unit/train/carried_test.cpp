// What a run carries on of the model that it began from.
#include "base/files.h"
#include "support/catch.h"
#include "support/model_files.h"
#include "train/checkpointing.h"

namespace esm::test {

TEST_CASE("what a resumed run carries on needs no file of its checkpoint") {
  const Source source("hf_d16");
  convert(source.path, source.out("native"), train::Format::kNative);
  const auto mapped = [&] { return read_text_file("/proc/self/maps").find(source.out("native")) != std::string::npos; };
  std::optional<train::ModelSource> model = train::open_model(source.out("native"));
  const train::Carried here = train::carry(*model, true);
  CHECK(here.origin_json == model->origin_json());
  REQUIRE(here.passthrough.size() == model->passthrough().size());
  for (size_t i = 0; i < here.passthrough.size(); ++i) {
    const std::span<const std::byte> bytes = model->passthrough()[i].bytes;
    CHECK(here.passthrough[i].name == model->passthrough()[i].name);
    const bool same = here.passthrough[i].make() == std::vector<std::byte>(bytes.begin(), bytes.end());
    CHECK(same);
  }
  CHECK_FALSE(here.passthrough.empty());
  CHECK(mapped());
  model.reset();
  CHECK_FALSE(mapped());
}

}  // namespace esm::test
