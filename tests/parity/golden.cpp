#include "parity/golden.h"

#include <cstring>
#include <filesystem>
#include <map>

#include "base/check.h"
#include "base/files.h"
#include "models/hf_format.h"
#include "nn/storage.h"
#include "support/batches.h"

namespace esm::test {
namespace {

std::string path_of(const std::string& folder, const std::string& file) {
  // A program that was built elsewhere is run from the root of the repository.
  const std::string inside = "/tests/data/golden/" + folder + "/" + file, path = ESM_SOURCE_DIR + inside;
  return std::filesystem::exists(path) ? path : "." + inside;
}

template <class T>
std::vector<double> as_doubles(const checkpoint::TensorRef& tensor) {
  std::vector<T> raw(tensor.bytes.size() / sizeof(T));
  std::memcpy(raw.data(), tensor.bytes.data(), tensor.bytes.size());
  return {raw.begin(), raw.end()};
}

std::vector<double> read(const checkpoint::SafetensorsFile& file, const std::string& name) {
  const checkpoint::TensorRef* tensor = file.find(name);
  ESM_CHECK(tensor != nullptr, "{} has no {}", file.path(), name);
  if (tensor->dtype == DType::kF32) return as_doubles<float>(*tensor);
  if (tensor->dtype == DType::kF64) return as_doubles<double>(*tensor);
  ESM_CHECK(tensor->dtype == DType::kI32, "type of {}", name);
  return as_doubles<int32_t>(*tensor);
}

}  // namespace

Golden::Golden(const std::string& folder)
    : config(models::hf_read_config(read_text_file(path_of(folder, "config.json")), folder)),
      io_(path_of(folder, "io.safetensors")),
      model_(path_of(folder, "model.safetensors")),
      layout_(models::hf_layout(config)) {
  const std::vector<double> ids = io("input_ids"), mask = io("attention_mask"), labels = io("labels");
  padded_length = io_.find("input_ids")->shape[1];
  std::vector<Row> rows;
  for (size_t begin = 0; begin < ids.size(); begin += padded_length) {
    Row row;
    for (size_t i = begin; i < begin + padded_length && mask[i] != 0; ++i) {
      row.tokens.push_back(static_cast<uint8_t>(ids[i]));
      row.labels.push_back(labels[i] < 0 ? -1 : static_cast<int>(labels[i]));
    }
    lengths.push_back(static_cast<int64_t>(row.tokens.size()));
    rows.push_back(std::move(row));
  }
  batch = make_batch(rows);
}

std::vector<double> Golden::io(const std::string& name) const { return read(io_, name); }

std::vector<double> Golden::packed(const std::string& name) const {
  const std::vector<double> all = io(name);
  const size_t width = all.size() / (lengths.size() * padded_length);
  std::vector<double> result;
  for (size_t s = 0; s < lengths.size(); ++s) {
    const auto begin = all.begin() + static_cast<int64_t>(s * padded_length * width);
    result.insert(result.end(), begin, begin + static_cast<int64_t>(lengths[s] * width));
  }
  return result;
}

std::vector<double> Golden::native_tensor(const std::string& native, const checkpoint::SafetensorsFile& file,
                                          const std::string& prefix) const {
  std::map<std::string, std::string> names;  // canonical spelling -> spelling in the file
  for (const checkpoint::TensorRef& tensor : file.tensors())
    if (tensor.name.starts_with(prefix))
      names[models::hf_canonical_name(tensor.name.substr(prefix.size()))] = tensor.name;
  std::map<int64_t, std::vector<double>> rows;
  for (const models::ForeignTensor& foreign : layout_.tensors) {
    if (foreign.native != native || foreign.tied || !names.contains(foreign.name)) continue;
    const std::vector<double> all = read(file, names[foreign.name]);
    const int64_t count = foreign.shape[0], width = static_cast<int64_t>(all.size()) / count;
    for (int64_t r = 0; r < count; ++r)
      rows[foreign.rows.native_row(r, count)].assign(all.begin() + r * width, all.begin() + (r + 1) * width);
  }
  std::vector<double> result;
  for (const auto& [row, values] : rows) result.insert(result.end(), values.begin(), values.end());
  ESM_CHECK(!result.empty(), "{} holds nothing for {}", file.path(), native);
  return result;
}

std::vector<double> Golden::gradient(const std::string& native) const { return native_tensor(native, io_, "grad."); }

models::Esm2 Golden::make_model(models::ModelOptions options, const Context& context) const {
  options.tokens_per_batch = std::max(options.tokens_per_batch, batch.budget());
  models::Esm2 model(context, config, options);
  const auto fill = [&](const at::Tensor& tensor, const std::string& name) {
    const std::vector<double> values = native_tensor(name, model_, "");
    ESM_CHECK(tensor.numel() == static_cast<int64_t>(values.size()), "size of {}", name);
    const at::Tensor host = at::empty(tensor.sizes(), at::kFloat);
    float* to = host.mutable_data_ptr<float>();
    for (size_t i = 0; i < values.size(); ++i) to[i] = static_cast<float>(values[i]);
    tensor.copy_(host);
  };
  for (nn::UnitStorage* unit : model.units())
    for (size_t i = 0; i < unit->entries().size(); ++i)
      fill(unit->view(nn::Role::kMaster, i), unit->entries()[i].spec.name);
  model.sync_compute();
  models::ContactHead contact{at::zeros({1, config.layers * config.heads}, at::kFloat), at::zeros({1}, at::kFloat)};
  fill(contact.weight, "contact.weight");
  fill(contact.bias, "contact.bias");
  model.set_contact_head(contact);
  return model;
}

}  // namespace esm::test
