#include "train/checkpointing.h"

#include <fmt/ranges.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/json_limits.h"
#include "base/json_writer.h"
#include "base/log.h"
#include "config/config.h"

namespace esm::train {
namespace {

using checkpoint::Role;

std::span<std::byte> bytes_of(const at::Tensor& tensor) {
  ESM_CHECK(tensor.is_contiguous() && tensor.is_cpu(), "a parameter is not contiguous in host memory");
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

DType dtype_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat: return DType::kF32;
    case at::kBFloat16: return DType::kBF16;
    case at::kByte: return DType::kF8E4M3;  // of moments
    case at::kInt: return DType::kI32;
    case at::kLong: return DType::kI64;
    default:
      fail<InternalError>("internal error: no checkpoint holds tensors of type {}",
                          c10::toString(tensor.scalar_type()));
  }
}

std::vector<std::byte> copy_of(const at::Tensor& tensor) {
  const at::Tensor here = tensor.cpu();
  const auto bytes = bytes_of(here);
  return {bytes.begin(), bytes.end()};
}

// Without a copy, host memory is written from where it is, and device memory is fetched when its turn comes.
checkpoint::TensorOut tensor_of(const nn::ParamSpec& spec, const at::Tensor& view, HostCopy* copy) {
  checkpoint::TensorOut out{.name = spec.name, .dtype = dtype_of(view), .shape = view.sizes().vec()};
  if (copy != nullptr)
    out.bytes = copy->add(view);
  else if (view.is_cpu())
    out.bytes = bytes_of(view);
  else
    out.make = [view] { return copy_of(view); };
  return out;
}

std::string joined_names(const ops::Scales& scales) { return fmt::format("{}", fmt::join(scales.names(), "\n")); }

/// With the names that the rows of the state belong to.
std::vector<checkpoint::TensorOut> scale_tensors(const ops::Scales& scales, HostCopy* copy) {
  std::vector<checkpoint::TensorOut> out;
  for (const auto& [name, tensor] : scales.state()) out.push_back(tensor_of({.name = name}, tensor, copy));
  const std::string names = joined_names(scales);
  out.push_back({.name = "names", .dtype = DType::kU8, .shape = {std::ssize(names)}, .make = [names] {
                   std::vector<std::byte> bytes(names.size());
                   std::memcpy(bytes.data(), names.data(), names.size());
                   return bytes;
                 }});
  return out;
}

// How `unit` keeps its weights in a checkpoint: as they are, or FP32 made of two halves when its turn comes.
checkpoint::TensorOut weights_of(const nn::UnitStorage& unit, size_t index, HostCopy* copy) {
  const nn::ParamSpec& spec = unit.entries()[index].spec;
  switch (unit.formats().master) {
    case precision::MasterFormat::kF32: return tensor_of(spec, unit.view(nn::Role::kMaster, index), copy);
    case precision::MasterFormat::kBF16: return tensor_of(spec, unit.view(nn::Role::kCompute, index), copy);
    case precision::MasterFormat::kBF16Remainder: break;
  }
  if (copy != nullptr) return tensor_of(spec, unit.weights(index), copy);
  return {.name = spec.name, .dtype = DType::kF32, .shape = spec.shape, .make = [&unit, index] {
            return copy_of(unit.weights(index));
          }};
}

template <class Make>
std::vector<checkpoint::TensorOut> all_tensors(models::Model& model, const Make& make) {
  std::vector<checkpoint::TensorOut> out;
  for (const nn::UnitStorage* unit : model.units())
    for (size_t i = 0; i < unit->entries().size(); ++i) out.push_back(make(*unit, i));
  return out;
}

std::vector<checkpoint::TensorOut> tensors_of(models::Model& model, nn::Role role, HostCopy* copy) {
  return all_tensors(model, [role, copy](const nn::UnitStorage& unit, size_t i) {
    return tensor_of(unit.entries()[i].spec, unit.view(role, i), copy);
  });
}

std::vector<checkpoint::TensorOut> weight_tensors(models::Model& model, HostCopy* copy) {
  return all_tensors(model, [copy](const nn::UnitStorage& unit, size_t i) { return weights_of(unit, i, copy); });
}

precision::StateFormats formats_of(models::Model& model) { return model.units().front()->formats(); }

/// fill(bytes in host memory) decides what `view`, wherever it lies, holds then.
template <class Fill>
void fill_view(const at::Tensor& view, const Fill& fill) {
  const at::Tensor here = view.is_cpu() ? view : at::empty(view.sizes(), view.scalar_type());
  fill(bytes_of(here));
  if (!view.is_cpu()) at::Tensor(view).copy_(here);
}

/// The same for the FP32 values of a parameter's weights.
template <class Fill>
void fill_weights(nn::UnitStorage& unit, size_t index, const Fill& fill) {
  const at::Tensor here = at::empty(unit.entries()[index].spec.shape, at::kFloat);
  fill(bytes_of(here));
  unit.set_weights(index, here);
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
  const auto damaged = [&] { fail<CheckpointError>("{}: the position in the data is missing or damaged", path); };
  if (!json.is_object() || !json.contains("loader") || !json["loader"].is_array()) damaged();
  std::vector<int64_t> integers;
  for (const auto& value : json["loader"]) {
    const std::optional<int64_t> integer = json_integer(value);
    if (!integer.has_value()) damaged();
    integers.push_back(*integer);
  }
  return data::LoaderState::from_integers(integers);
}

/// Where a role of a checkpoint lies in a model. Master weights in two halves have no place of their own.
struct Place {
  Role role;
  nn::Role where;
};

std::vector<Place> places_of(const precision::StateFormats& formats) {
  std::vector<Place> places{{Role::kExpAvg, nn::Role::kExpAvg}, {Role::kExpAvgSq, nn::Role::kExpAvgSq}};
  if (formats.moments == precision::MomentFormat::kE4M3) {
    places.push_back({Role::kExpAvgScale, nn::Role::kExpAvgScale});
    places.push_back({Role::kExpAvgSqScale, nn::Role::kExpAvgSqScale});
  }
  return places;
}

std::vector<checkpoint::ExpectedTensor> expected_tensors(const std::vector<checkpoint::TensorOut>& tensors) {
  std::vector<checkpoint::ExpectedTensor> expected;
  for (const checkpoint::TensorOut& tensor : tensors)
    expected.push_back({.name = tensor.name, .shape = tensor.shape, .dtype = tensor.dtype});
  return expected;
}

void copy_bytes(const checkpoint::TensorRef& source, std::span<std::byte> target) {
  ESM_CHECK(source.bytes.size() == target.size(), "{}: {} bytes for {}", source.name, source.bytes.size(),
            target.size());
  std::memcpy(target.data(), source.bytes.data(), target.size());
}

void copy_role(const checkpoint::OpenCheckpoint& from, Place place, models::Model& model) {
  for (nn::UnitStorage* unit : model.units())
    for (size_t i = 0; i < unit->entries().size(); ++i)
      fill_view(unit->view(place.where, i), [&](std::span<std::byte> target) {
        copy_bytes(from.tensor(place.role, unit->entries()[i].spec.name), target);
      });
}

void copy_weights(const checkpoint::OpenCheckpoint& from, models::Model& model) {
  if (formats_of(model).master == precision::MasterFormat::kBF16)
    return copy_role(from, {Role::kParameter, nn::Role::kCompute}, model);
  for (nn::UnitStorage* unit : model.units())
    for (size_t i = 0; i < unit->entries().size(); ++i)
      fill_weights(*unit, i, [&](std::span<std::byte> target) {
        copy_bytes(from.tensor(Role::kParameter, unit->entries()[i].spec.name), target);
      });
}

template <class Int>
void check_counts(const checkpoint::OpenCheckpoint& from, const checkpoint::TensorRef& tensor, Int limit) {
  for (size_t at = 0; at + sizeof(Int) <= tensor.bytes.size(); at += sizeof(Int)) {
    Int count = 0;
    std::memcpy(&count, tensor.bytes.data() + at, sizeof count);
    if (count < 0 || count >= limit)
      fail<CheckpointError>("{}: damaged: '{}' holds {}, a count from 0 to below {} is wanted", from.path(),
                            tensor.name, count, limit);
  }
}

/// The integers of the scales' state are counts, and amax.steps decides where the next amax is written. With the
/// limits they can be counted on for as long as any run lasts.
void check_scale_counts(const checkpoint::OpenCheckpoint& from) {
  for (const checkpoint::TensorRef* tensor : from.tensors(Role::kScaleState)) {
    if (tensor->dtype == DType::kI64) check_counts(from, *tensor, int64_t{1} << 62);
    if (tensor->dtype == DType::kI32) check_counts(from, *tensor, int32_t{1} << 30);
  }
}

/// False when the checkpoint has none for these products.
bool copy_scales(const checkpoint::OpenCheckpoint& from, ops::Scales& scales) {
  const checkpoint::TensorRef* names = from.find(Role::kScaleState, "names");
  const std::string expected = joined_names(scales);
  if (names == nullptr || names->bytes.size() != expected.size() ||
      std::memcmp(names->bytes.data(), expected.data(), expected.size()) != 0)
    return false;
  const auto state = scales.state();
  for (const auto& [name, tensor] : state) {
    const checkpoint::TensorRef* found = from.find(Role::kScaleState, name);
    if (found == nullptr || found->shape != tensor.sizes().vec() || found->dtype != dtype_of(tensor)) return false;
  }
  for (const auto& [name, tensor] : state)
    fill_view(tensor, [&](std::span<std::byte> target) { copy_bytes(from.tensor(Role::kScaleState, name), target); });
  scales.state_restored();
  return true;
}

}  // namespace

Carried carry(const ModelSource& source, bool own) {
  Carried carried{
      .origin_json = source.origin_json(), .parameters = {}, .passthrough = source.passthrough(), .source = {}};
  for (const ModelTensor& tensor : source.tensors())
    if (tensor.name.starts_with("contact.")) carried.parameters.push_back(carried_tensor(source, tensor));
  if (!own) {
    carried.source = source;
    return carried;
  }
  for (auto* const tensors : {&carried.parameters, &carried.passthrough})
    for (checkpoint::TensorOut& tensor : *tensors) {
      const auto bytes = std::make_shared<const std::vector<std::byte>>(
          tensor.make ? tensor.make() : std::vector<std::byte>(tensor.bytes.begin(), tensor.bytes.end()));
      tensor.bytes = {};
      tensor.make = [bytes] { return *bytes; };
    }
  return carried;
}

checkpoint::SaveRequest save_request(const ToSave& what, HostCopy* copy) {
  const auto& [model, optimizer, state, position, config, carried] = what;
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
  request.parameters = weight_tensors(model, copy);
  request.exp_avg = tensors_of(model, nn::Role::kExpAvg, copy);
  request.exp_avg_sq = tensors_of(model, nn::Role::kExpAvgSq, copy);
  if (formats_of(model).moments == precision::MomentFormat::kE4M3) {
    request.exp_avg_scale = tensors_of(model, nn::Role::kExpAvgScale, copy);
    request.exp_avg_sq_scale = tensors_of(model, nn::Role::kExpAvgSqScale, copy);
  }
  if (const ops::Scales* scales = model.scales(); scales != nullptr) request.scale_state = scale_tensors(*scales, copy);
  manifest.origin_json = carried.origin_json;
  request.passthrough = carried.passthrough;
  request.parameters.insert(request.parameters.end(), carried.parameters.begin(), carried.parameters.end());
  return request;
}

int64_t checkpoint_bytes(models::Model& model) {
  int64_t rest = 1 << 20;
  if (ops::Scales* scales = model.scales(); scales != nullptr) rest += scales->memory().bytes;
  const auto [master, moments] = formats_of(model);
  const int64_t n = model.parameter_count(), weights = master == precision::MasterFormat::kBF16 ? 2 * n : 4 * n;
  switch (moments) {
    case precision::MomentFormat::kF32: return rest + weights + 8 * n;
    case precision::MomentFormat::kBF16: return rest + weights + 4 * n;
    case precision::MomentFormat::kE4M3: return rest + weights + 2 * n + 8 * n / precision::kScaleElements;
  }
  return 0;
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
      fill_weights(*unit, i, [&](std::span<std::byte> target) {
        source.copy_to(spec.name, {reinterpret_cast<float*>(target.data()), target.size() / sizeof(float)});
      });
    }
  }
}

Restored restore(const checkpoint::OpenCheckpoint& from, models::Model& model, Optimizer& optimizer) {
  if (!from.has_optimizer())
    fail<CheckpointError>(
        "{} holds weights only, no optimizer state, so it cannot be resumed; to start a new run from "
        "its weights set init_from: {}",
        from.path(), from.path());
  const std::vector<Place> places = places_of(formats_of(model));
  for (const Place& place : places) from.require(place.role, expected_tensors(tensors_of(model, place.where, nullptr)));
  std::vector<checkpoint::ExpectedTensor> expected = expected_tensors(weight_tensors(model, nullptr));
  expected.push_back({.name = "contact.weight", .shape = {}, .optional = true});
  expected.push_back({.name = "contact.bias", .shape = {}, .optional = true});
  from.require(Role::kParameter, expected);
  if (model.scales() != nullptr) check_scale_counts(from);
  copy_weights(from, model);
  for (const Place& place : places) copy_role(from, place, model);
  if (ops::Scales* scales = model.scales(); scales != nullptr && !copy_scales(from, *scales))
    log::info("{} has no scales for these products: the first step measures them", from.path());
  Restored restored;
  restored.state = TrainState::from_json(from.manifest().counters_json);
  restored.position = parse_position(from.manifest().data_position_json, from.path());
  optimizer.set_updates(restored.state.updates);
  return restored;
}

}  // namespace esm::train
