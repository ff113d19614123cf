#include "train/checkpointing.h"

#include <cstring>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/json_writer.h"
#include "config/config.h"

namespace esm::train {
namespace {

using checkpoint::Role;

std::span<std::byte> bytes_of(const at::Tensor& tensor) {
  ESM_CHECK(tensor.is_contiguous() && tensor.is_cpu(), "a parameter is not contiguous in host memory");
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

// Host memory is written from where it is, device memory is fetched when its turn comes.
checkpoint::TensorOut tensor_of(const nn::ParamSpec& spec, const at::Tensor& view) {
  checkpoint::TensorOut out{.name = spec.name, .dtype = DType::kF32, .shape = spec.shape};
  if (view.is_cpu())
    out.bytes = bytes_of(view);
  else
    out.make = [view] {
      const at::Tensor here = view.cpu();
      const auto bytes = bytes_of(here);
      return std::vector<std::byte>(bytes.begin(), bytes.end());
    };
  return out;
}

std::vector<checkpoint::TensorOut> tensors_of(models::Model& model, nn::Role role) {
  std::vector<checkpoint::TensorOut> out;
  for (nn::UnitStorage* unit : model.units())
    for (size_t i = 0; i < unit->entries().size(); ++i)
      out.push_back(tensor_of(unit->entries()[i].spec, unit->view(role, i)));
  return out;
}

/// fill(bytes in host memory) decides what `view`, wherever it lies, holds then.
template <class Fill>
void fill_view(const at::Tensor& view, const Fill& fill) {
  const at::Tensor here = view.is_cpu() ? view : at::empty(view.sizes(), at::kFloat);
  fill(bytes_of(here));
  if (!view.is_cpu()) at::Tensor(view).copy_(here);
}

// A tensor of the source that the model does not train, read when its turn comes.
checkpoint::TensorOut carried_tensor(const ModelSource& source, const ModelTensor& tensor) {
  return {.name = tensor.name, .dtype = DType::kF32, .shape = tensor.shape, .make = [source, name = tensor.name] {
            const std::vector<float> values = source.read(name);
            std::vector<std::byte> bytes(values.size() * sizeof(float));
            std::memcpy(bytes.data(), values.data(), bytes.size());
            return bytes;
          }};
}

std::string position_json(const data::LoaderState& position) {
  JsonWriter json;
  json.begin_object().field("epochs", position.epochs()).field("loader", position.to_integers());
  return json.end_object().text();
}

data::LoaderState parse_position(const std::string& text, const std::string& path) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  try {
    return data::LoaderState::from_integers(json.at("loader").get<std::vector<int64_t>>());
  } catch (const nlohmann::json::exception&) {
    fail<CheckpointError>("{}: the position in the data is missing or damaged", path);
  }
}

std::vector<checkpoint::ExpectedTensor> expected_tensors(models::Model& model) {
  std::vector<checkpoint::ExpectedTensor> expected;
  for (nn::UnitStorage* unit : model.units())
    for (const nn::ParamEntry& entry : unit->entries()) expected.push_back({entry.spec.name, entry.spec.shape});
  return expected;
}

void copy_role(const checkpoint::OpenCheckpoint& from, Role role, models::Model& model, nn::Role to) {
  for (nn::UnitStorage* unit : model.units()) {
    for (size_t i = 0; i < unit->entries().size(); ++i) {
      const auto source = from.tensor(role, unit->entries()[i].spec.name).bytes;
      fill_view(unit->view(to, i), [&](std::span<std::byte> target) {
        ESM_CHECK(source.size() == target.size(), "{}: {} bytes for {}", unit->entries()[i].spec.name, source.size(),
                  target.size());
        std::memcpy(target.data(), source.data(), source.size());
      });
    }
  }
}

}  // namespace

checkpoint::SaveRequest save_request(models::Model& model, const Optimizer& optimizer, const TrainState& state,
                                     const data::LoaderState& position, const RunConfig& config,
                                     const std::optional<ModelSource>& carried) {
  checkpoint::SaveRequest request;
  checkpoint::Manifest& manifest = request.manifest;
  manifest.step = state.step;
  manifest.model_kind = "esm2";
  manifest.model_yaml = config::to_yaml(config.model);
  manifest.config_yaml = config::to_yaml(config);
  manifest.seed = static_cast<uint64_t>(config.seed);
  manifest.threads = config.train.threads;
  manifest.data_position_json = position_json(position);
  JsonWriter schedule;
  schedule.begin_object().field("updates", optimizer.updates());
  schedule.field("lr", config.optimizer.lr * schedule_factor(config.schedule, state.step, config.train.max_steps));
  manifest.schedule_json = schedule.end_object().text();
  manifest.counters_json = state.to_json();
  if (state.valid_step == state.step) manifest.metric = state.valid_loss;
  request.parameters = tensors_of(model, nn::Role::kMaster);
  request.exp_avg = tensors_of(model, nn::Role::kExpAvg);
  request.exp_avg_sq = tensors_of(model, nn::Role::kExpAvgSq);
  if (carried.has_value()) {
    manifest.origin_json = carried->origin_json();
    request.passthrough = carried->passthrough();
    for (const ModelTensor& tensor : carried->tensors())
      if (tensor.name.starts_with("contact.")) request.parameters.push_back(carried_tensor(*carried, tensor));
  }
  return request;
}

int64_t checkpoint_bytes(models::Model& model) {
  constexpr int64_t kBytesPerParameter = 3 * sizeof(float);  // master and two moments
  constexpr int64_t kRest = 1 << 20;
  return model.parameter_count() * kBytesPerParameter + kRest;
}

void load_parameters(models::Model& model, const ModelSource& source) {
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const ModelTensor& tensor : source.tensors()) shapes[tensor.name] = tensor.shape;
  for (nn::UnitStorage* unit : model.units()) {
    for (size_t i = 0; i < unit->entries().size(); ++i) {
      const nn::ParamSpec& spec = unit->entries()[i].spec;
      const auto found = shapes.find(spec.name);
      if (found == shapes.end()) fail<CheckpointError>("{} has no tensor '{}'", source.path(), spec.name);
      if (found->second != spec.shape)
        fail<CheckpointError>("{}: '{}' has shape {}, the model wants {}", source.path(), spec.name,
                              checkpoint::shape_text(found->second), checkpoint::shape_text(spec.shape));
      fill_view(unit->view(nn::Role::kMaster, i), [&](std::span<std::byte> target) {
        source.copy_to(spec.name, {reinterpret_cast<float*>(target.data()), target.size() / sizeof(float)});
      });
    }
  }
  model.sync_compute();
}

Restored restore(const checkpoint::OpenCheckpoint& from, models::Model& model, Optimizer& optimizer) {
  if (!from.has_optimizer())
    fail<CheckpointError>(
        "{} holds weights only, no optimizer state, so it cannot be resumed; to start a new run from "
        "its weights set init_from: {}",
        from.path(), from.path());
  std::vector<checkpoint::ExpectedTensor> expected = expected_tensors(model);
  from.require(Role::kExpAvg, expected);
  from.require(Role::kExpAvgSq, expected);
  expected.push_back({.name = "contact.weight", .shape = {}, .optional = true});
  expected.push_back({.name = "contact.bias", .shape = {}, .optional = true});
  from.require(Role::kParameter, expected);
  copy_role(from, Role::kParameter, model, nn::Role::kMaster);
  copy_role(from, Role::kExpAvg, model, nn::Role::kExpAvg);
  copy_role(from, Role::kExpAvgSq, model, nn::Role::kExpAvgSq);
  model.sync_compute();
  Restored restored;
  restored.state = TrainState::from_json(from.manifest().counters_json);
  restored.position = parse_position(from.manifest().data_position_json, from.path());
  optimizer.set_updates(restored.state.updates);
  return restored;
}

}  // namespace esm::train
