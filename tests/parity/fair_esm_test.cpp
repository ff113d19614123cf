// A .pt file of fair-esm, loaded as ours: the logits and contacts that fair-esm itself computed.
#include <cstring>

#include "models/esm2.h"
#include "support/batches.h"
#include "support/compare.h"
#include "support/torch.h"
#include "train/checkpointing.h"
#include "train/model_io.h"

namespace esm::test {
namespace {

constexpr char kFolder[] = ESM_SOURCE_DIR "/tests/data/fair_esm/";

template <class T>
std::vector<T> raw(const checkpoint::SafetensorsFile& file, const char* name) {
  const checkpoint::TensorRef* tensor = file.find(name);
  REQUIRE(tensor != nullptr);
  std::vector<T> values(tensor->bytes.size() / sizeof(T));
  std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
  return values;
}

struct Computed {
  std::vector<double> logits, contacts;
};

Computed compute(const std::string& path, const std::vector<Row>& rows) {
  const train::ModelSource source = train::open_model(path);
  models::Esm2 model({}, source.config(), {.precision = precision::Precision::kFp32, .tokens_per_batch = 128});
  train::load_parameters(model, source);
  const auto as_tensor = [&](const char* name, at::IntArrayRef shape) {
    at::Tensor tensor = at::empty(shape, at::kFloat);
    source.copy_to(name, {tensor.mutable_data_ptr<float>(), static_cast<size_t>(tensor.numel())});
    return tensor;
  };
  const int64_t channels = source.config().layers * source.config().heads;
  model.set_contact_head({as_tensor("contact.weight", {1, channels}), as_tensor("contact.bias", {1})});
  const data::Batch batch = make_batch(rows);
  const models::Outputs out = model.forward(batch, {.logits = true, .contacts = true});
  return {.logits = values(out.logits_TV.narrow(0, 0, batch.real_tokens)), .contacts = values(out.contacts[0])};
}

}  // namespace

TEST_CASE("fair-esm's own logits and contacts, and those of the same weights from transformers' folder") {
  const checkpoint::SafetensorsFile io(std::string(kFolder) + "io.safetensors");
  const std::vector<int32_t> tokens = raw<int32_t>(io, "tokens");
  const std::vector<float> logits = raw<float>(io, "logits"), contacts = raw<float>(io, "contacts");
  const auto padded = static_cast<size_t>(io.find("tokens")->shape[1]);
  std::vector<Row> rows;
  std::vector<double> expected;
  for (size_t begin = 0; begin < tokens.size(); begin += padded) {
    Row row;
    for (size_t i = begin; i < begin + padded && tokens[i] != 1; ++i) {
      row.tokens.push_back(static_cast<uint8_t>(tokens[i]));
      row.labels.push_back(-1);
      expected.insert(expected.end(), logits.begin() + static_cast<int64_t>(33 * i),
                      logits.begin() + static_cast<int64_t>(33 * (i + 1)));
    }
    rows.push_back(std::move(row));
  }
  REQUIRE(rows.size() == 2);
  const Computed fair = compute(std::string(kFolder) + "tiny.pt", rows);
  CHECK(difference(fair.logits, expected).max_abs < 2e-5);
  CHECK(difference(fair.contacts, std::vector<double>(contacts.begin(), contacts.end())).max_abs < 1e-5);
  for (const char* same : {"hf", "older_fp16.pt"}) {
    const Computed other = compute(std::string(kFolder) + same, rows);
    CHECK(other.logits == fair.logits);
    CHECK(other.contacts == fair.contacts);
  }
}

}  // namespace esm::test
