#include "nn/storage.h"

#include <algorithm>

#include "base/check.h"
#include "base/narrow.h"
#include "base/philox.h"
#include "ops/cast.h"
#include "ops/parallel.h"
#include "ops/place.h"

namespace esm::nn {
namespace {

constexpr std::array kRoleNames{"compute", "master", "gradient", "first moment", "second moment"};

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
                         precision::Precision precision, bool training)
    : context_(context), name_(std::move(name)), precision_(precision) {
  for (ParamSpec& spec : specs) {
    int64_t numel = 1;
    for (const int64_t size : spec.shape) numel *= size;
    const int64_t rows = std::max(spec.padded_rows, spec.shape.at(0));
    entries_.push_back({.spec = std::move(spec), .offset = flat_numel_, .numel = numel});
    numel_ += numel;
    flat_numel_ = round_up(flat_numel_ + numel / entries_.back().spec.shape[0] * rows, kAlignment);
  }
  allocate(Role::kMaster);
  allocate(Role::kCompute);
  if (training) allocate(Role::kGrad);
}

void UnitStorage::allocate(Role role) {
  at::Tensor& buffer = buffers_[static_cast<size_t>(role)];
  if (buffer.defined()) return;
  if (role != Role::kCompute)
    buffer = at::zeros({flat_numel_}, ops::options(context_, at::kFloat));
  else if (precision_ == precision::Precision::kFp32)
    buffer = flat(Role::kMaster);
  else
    buffer = at::zeros({flat_numel_}, ops::options(context_, at::kBFloat16));
}

const at::Tensor& UnitStorage::flat(Role role) const {
  ESM_CHECK(has(role), "unit {} has no {} buffer", name_, kRoleNames[static_cast<size_t>(role)]);
  return buffer(role);
}

at::Tensor UnitStorage::view(Role role, size_t index) const {
  const ParamEntry& entry = entries_.at(index);
  return flat(role).narrow(0, entry.offset, entry.numel).view(entry.spec.shape);
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
    const at::Tensor target = view(Role::kMaster, i);
    const at::Tensor values = target.is_cpu() ? target : at::empty(target.sizes(), at::kFloat);
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
    if (!target.is_cpu()) target.copy_(values);
  }
  sync_compute();
}

void UnitStorage::sync_compute() {
  if (has_compute_copy()) ops::cast(context_, flat(Role::kMaster), flat(Role::kCompute));
}

void UnitStorage::zero_grad() { flat(Role::kGrad).zero_(); }

}  // namespace esm::nn
