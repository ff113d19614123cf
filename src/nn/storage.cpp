#include "nn/storage.h"

#include <algorithm>

#include "base/check.h"
#include "base/narrow.h"
#include "base/philox.h"
#include "ops/parallel.h"
#include "ops/place.h"
#include "ops/weights.h"

namespace esm::nn {
namespace {

using precision::MasterFormat;
using precision::MomentFormat;

constexpr std::array kRoleNames{"compute",
                                "master",
                                "gradient",
                                "first moment",
                                "second moment",
                                "remainder",
                                "scale of the first moment",
                                "scale of the second moment"};

bool is_matrix(ParamKind kind) {
  switch (kind) {
    case ParamKind::kMatrix:
    case ParamKind::kEmbedding: return true;
    case ParamKind::kBias:
    case ParamKind::kNormWeight:
    case ParamKind::kNormBias: return false;
  }
  return false;
}

bool is_scale(Role role) { return role == Role::kExpAvgScale || role == Role::kExpAvgSqScale; }

/// FNV-1a, 64 bits: which random numbers a parameter gets.
uint64_t hash_name(std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325ull;
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3ull;
  return hash;
}

/// Standard normal times std: element i comes from word pair (i mod 4) / 2 of Philox block (name, i / 4).
void fill_normal(uint64_t seed, const std::string& name, double std, float* values, int64_t numel) {
  const uint64_t stream = hash_name(name);
  ops::parallel_ranges((numel + 3) / 4, 256, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const PhiloxResult words = philox(seed, RandomStream::kInit, stream, static_cast<uint32_t>(block));
      for (int64_t half = 0; half < 2; ++half) {
        const std::array<double, 2> pair = normal_pair(words.v[2 * half], words.v[2 * half + 1]);
        for (int64_t i = 0; i < 2; ++i)
          if (const int64_t at = 4 * block + 2 * half + i; at < numel) values[at] = static_cast<float>(std * pair[i]);
      }
    }
  });
}

}  // namespace

UnitStorage::UnitStorage(const Context& context, std::string name, std::vector<ParamSpec> specs,
                         precision::Precision precision, bool training, precision::StateFormats formats)
    : context_(context), name_(std::move(name)), precision_(precision), formats_(formats) {
  ESM_CHECK(has_compute_copy() || formats.master == MasterFormat::kF32, "low-byte master weights in FP32 mode");
  for (ParamSpec& spec : specs) {
    int64_t numel = 1;
    for (const int64_t size : spec.shape) numel *= size;
    const int64_t rows = std::max(spec.padded_rows, spec.shape.at(0));
    const int64_t extent = round_up(numel / spec.shape[0] * rows, kAlignment);
    entries_.push_back({.spec = std::move(spec), .offset = 0, .extent = extent, .numel = numel});
    numel_ += numel;
  }
  const auto place = [&](bool matrices) {
    for (ParamEntry& entry : entries_) {
      if (is_matrix(entry.spec.kind) != matrices) continue;
      entry.offset = flat_numel_;
      flat_numel_ += entry.extent;
    }
  };
  place(true);
  matrix_numel_ = flat_numel_;
  place(false);
  if (formats_.master == MasterFormat::kF32) allocate(Role::kMaster, flat_numel_, at::kFloat);
  if (formats_.master == MasterFormat::kBF16Remainder) allocate(Role::kRemainder, flat_numel_, ops::kRemainderType);
  if (has_compute_copy())
    allocate(Role::kCompute, flat_numel_, at::kBFloat16);
  else
    buffers_[static_cast<size_t>(Role::kCompute)] = flat(Role::kMaster);
  if (training) allocate(Role::kGrad, flat_numel_, at::kFloat);
}

void UnitStorage::allocate(Role role, int64_t numel, at::ScalarType type) {
  at::Tensor& buffer = buffers_[static_cast<size_t>(role)];
  if (!buffer.defined()) buffer = at::zeros({numel}, ops::options(context_, type));
}

void UnitStorage::allocate_moments() {
  const auto moment_type = [&] {
    switch (formats_.moments) {
      case MomentFormat::kF32: return at::kFloat;
      case MomentFormat::kBF16: return at::kBFloat16;
      case MomentFormat::kE4M3: return at::kByte;
    }
    return at::kFloat;
  };
  for (const Role role : {Role::kExpAvg, Role::kExpAvgSq}) allocate(role, flat_numel_, moment_type());
  if (formats_.moments == MomentFormat::kE4M3)
    for (const Role role : {Role::kExpAvgScale, Role::kExpAvgSqScale})
      allocate(role, flat_numel_ / precision::kScaleElements, at::kFloat);
}

void UnitStorage::for_each_buffer(
    const std::function<void(std::string_view name, const at::Tensor& buffer)>& body) const {
  for (size_t i = 0; i < buffers_.size(); ++i) {
    const at::Tensor& buffer = buffers_[i];
    const auto same = [&](const at::Tensor& other) { return other.is_same(buffer); };
    const bool again = std::any_of(buffers_.begin() + static_cast<std::ptrdiff_t>(i) + 1, buffers_.end(), same);
    if (buffer.defined() && !again) body(kRoleNames[i], buffer);
  }
}

const at::Tensor& UnitStorage::flat(Role role) const {
  ESM_CHECK(has(role), "unit {} has no {} buffer", name_, kRoleNames[static_cast<size_t>(role)]);
  return buffer(role);
}

at::Tensor UnitStorage::view(Role role, size_t index) const {
  const ParamEntry& entry = entries_.at(index);
  const at::Tensor part = flat_view(role, entry);
  return is_scale(role) ? part : part.view(entry.spec.shape);
}

at::Tensor UnitStorage::flat_view(Role role, const ParamEntry& entry) const {
  constexpr int64_t kScaled = precision::kScaleElements;
  if (is_scale(role)) return flat(role).narrow(0, entry.offset / kScaled, (entry.numel + kScaled - 1) / kScaled);
  return flat(role).narrow(0, entry.offset, entry.numel);
}

at::Tensor UnitStorage::view(Role role, std::string_view name) const {
  const int64_t index = find(name);
  ESM_CHECK(index >= 0, "unit {} has no parameter {}", name_, name);
  return view(role, static_cast<size_t>(index));
}

at::Tensor UnitStorage::padded_view(Role role, std::string_view name) const {
  const int64_t index = find(name);
  ESM_CHECK(index >= 0 && entries_[static_cast<size_t>(index)].spec.padded_rows > 0, "unit {} has no padded {}", name_,
            name);
  const ParamEntry& entry = entries_[static_cast<size_t>(index)];
  std::vector<int64_t> shape = entry.spec.shape;
  const int64_t numel = entry.numel / shape[0] * entry.spec.padded_rows;
  shape[0] = entry.spec.padded_rows;
  return flat(role).narrow(0, entry.offset, numel).view(shape);
}

int64_t UnitStorage::find(std::string_view name) const {
  for (size_t i = 0; i < entries_.size(); ++i)
    if (entries_[i].spec.name == name) return static_cast<int64_t>(i);
  return -1;
}

void UnitStorage::init(uint64_t seed) {
  for (size_t i = 0; i < entries_.size(); ++i) {
    const ParamSpec& spec = entries_[i].spec;
    const at::Tensor values = at::empty(spec.shape, at::kFloat);
    switch (spec.kind) {
      case ParamKind::kMatrix:
      case ParamKind::kEmbedding:
        fill_normal(seed, spec.name, spec.init_std, values.mutable_data_ptr<float>(), values.numel());
        if (spec.zero_row >= 0) values.select(0, spec.zero_row).zero_();
        break;
      case ParamKind::kNormWeight: values.fill_(1.0); break;
      case ParamKind::kBias:
      case ParamKind::kNormBias: values.zero_(); break;
    }
    set_weights(i, values);
  }
}

at::Tensor UnitStorage::weights(size_t index) const {
  if (has(Role::kMaster)) return view(Role::kMaster, index);
  const at::Tensor out = at::empty(entries_.at(index).spec.shape, ops::options(context_, at::kFloat));
  copy_weights(index, out);
  return out;
}

void UnitStorage::copy_weights(size_t index, const at::Tensor& out) const {
  if (has(Role::kMaster)) {
    out.copy_(view(Role::kMaster, index));
    return;
  }
  const at::Tensor remainder = has(Role::kRemainder) ? view(Role::kRemainder, index) : at::Tensor();
  ops::join_weights(context_, view(Role::kCompute, index), remainder, out);
}

void UnitStorage::set_weights(size_t index, const at::Tensor& values) {
  const std::vector<int64_t>& shape = entries_.at(index).spec.shape;
  ESM_CHECK(values.sizes() == at::IntArrayRef(shape) && values.scalar_type() == at::kFloat,
            "weights of another shape or type for {}", entries_[index].spec.name);
  at::Tensor here = values;
  if (has(Role::kMaster)) {
    here = view(Role::kMaster, index);
    if (here.data_ptr() != values.data_ptr()) here.copy_(values);
  } else if (values.device() != ops::device_of(context_)) {
    here = at::empty(shape, ops::options(context_, at::kFloat));
    here.copy_(values);
  }
  if (has_compute_copy())
    ops::split_weights(context_, here, view(Role::kCompute, index),
                       has(Role::kRemainder) ? view(Role::kRemainder, index) : at::Tensor());
}

void UnitStorage::sync_compute() {
  if (has_compute_copy() && has(Role::kMaster))
    ops::split_weights(context_, flat(Role::kMaster), flat(Role::kCompute), {});
}

void UnitStorage::zero_grad(ZeroGrad what) {
  const int64_t begin = what == ZeroGrad::kAll ? 0 : matrix_numel_;
  flat(Role::kGrad).narrow(0, begin, flat_numel_ - begin).zero_();
}

}  // namespace esm::nn
