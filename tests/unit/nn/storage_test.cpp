#include "nn/storage.h"

#include <cmath>

#include "base/error.h"
#include "support/compare.h"
#include "support/torch.h"

namespace esm::test {
namespace {

using nn::ParamKind;
using nn::Role;

std::vector<nn::ParamSpec> specs() {
  return {{.name = "u.weight", .shape = {50, 30}, .kind = ParamKind::kMatrix, .init_std = 0.02},
          {.name = "u.bias", .shape = {50}, .kind = ParamKind::kBias},
          {.name = "u.norm.weight", .shape = {30}, .kind = ParamKind::kNormWeight},
          {.name = "u.norm.bias", .shape = {30}, .kind = ParamKind::kNormBias},
          {.name = "u.table", .shape = {33, 64}, .kind = ParamKind::kEmbedding, .init_std = 0.1, .zero_row = 1}};
}

nn::UnitStorage storage(precision::Precision precision, bool training = true) {
  return nn::UnitStorage(Context{}, "u", specs(), precision, training);
}

}  // namespace

TEST_CASE("parameters are aligned views of flat buffers, padding stays 0") {
  const auto precision = GENERATE(precision::Precision::kFp32, precision::Precision::kBf16);
  nn::UnitStorage unit = storage(precision);
  unit.init(1);
  int64_t numel = 0, first_vector = unit.flat_numel();
  std::vector<bool> used(unit.flat_numel(), false);
  for (const nn::ParamEntry& entry : unit.entries()) {
    CHECK(entry.offset % nn::UnitStorage::kAlignment == 0);
    CHECK(entry.extent % nn::UnitStorage::kAlignment == 0);
    CHECK(entry.extent >= entry.numel);
    numel += entry.numel;
    for (int64_t i = 0; i < entry.numel; ++i) {
      CHECK(!used[entry.offset + i]);
      used[entry.offset + i] = true;
    }
    const bool matrix = entry.spec.kind == ParamKind::kMatrix || entry.spec.kind == ParamKind::kEmbedding;
    if (!matrix) first_vector = std::min(first_vector, entry.offset);
  }
  for (const nn::ParamEntry& entry : unit.entries())
    if (entry.spec.shape.size() > 1) CHECK(entry.offset < first_vector);
  CHECK(unit.flat_numel() % nn::UnitStorage::kAlignment == 0);
  CHECK(unit.numel() == numel);
  for (const Role role : {Role::kMaster, Role::kCompute, Role::kGrad}) {
    const std::vector<double> flat = values(unit.flat(role));
    for (size_t i = 0; i < flat.size(); ++i)
      if (!used[i]) CHECK(flat[i] == 0);
  }
  unit.view(Role::kMaster, "u.bias").fill_(3.0);
  unit.sync_compute();
  CHECK(values(unit.view(Role::kCompute, "u.bias")) == std::vector<double>(50, 3.0));
  CHECK(unit.view(Role::kCompute, 0).scalar_type() ==
        (precision == precision::Precision::kFp32 ? at::kFloat : at::kBFloat16));
}

TEST_CASE("gradients of vectors can be zeroed alone") {
  nn::UnitStorage unit = storage(precision::Precision::kFp32);
  for (size_t i = 0; i < unit.entries().size(); ++i) unit.view(Role::kGrad, i).fill_(5);
  unit.zero_grad(nn::ZeroGrad::kVectors);
  for (size_t i = 0; i < unit.entries().size(); ++i)
    for (const double value : values(unit.view(Role::kGrad, i)))
      REQUIRE(value == (unit.entries()[i].spec.shape.size() > 1 ? 5 : 0));
  unit.zero_grad();
  for (const double value : values(unit.flat(Role::kGrad))) REQUIRE(value == 0);
}

TEST_CASE("buffers appear on demand") {
  nn::UnitStorage unit = storage(precision::Precision::kFp32, false);
  CHECK(unit.has(Role::kMaster));
  CHECK(!unit.has(Role::kGrad));
  CHECK_THROWS_AS(unit.flat(Role::kExpAvg), InternalError);
  unit.allocate_moments();
  unit.flat(Role::kExpAvg).fill_(2.0);
  unit.allocate_moments();  // keeps what is there
  CHECK(values(unit.flat(Role::kExpAvg))[0] == 2);
  CHECK(unit.find("u.bias") == 1);
  CHECK(unit.find("bias") == -1);
  CHECK_THROWS_AS(unit.view(Role::kMaster, "bias"), InternalError);
}

TEST_CASE("initial values: moments, constants, zero row; a function of seed, name and element alone") {
  nn::UnitStorage unit = storage(precision::Precision::kFp32);
  unit.init(42);
  for (const auto& [name, std] : {std::pair{"u.weight", 0.02}, {"u.table", 0.1}}) {
    CAPTURE(name);
    std::vector<double> all = values(unit.view(Role::kMaster, name));
    if (std::string(name) == "u.table") all.erase(all.begin() + 64, all.begin() + 128);
    const double n = static_cast<double>(all.size());
    double mean = 0, square = 0, fourth = 0;
    for (const double value : all) {
      mean += value / n;
      square += value * value / n;
      fourth += value * value * value * value / n;
    }
    // Four standard errors of each moment of a normal distribution.
    CHECK(std::abs(mean) < 4 * std / std::sqrt(n));
    CHECK(std::abs(square / (std * std) - 1) < 4 * std::sqrt(2 / n));
    CHECK(std::abs(fourth / (3 * std * std * std * std) - 1) < 4 * std::sqrt(96.0 / 9 / n));
  }
  CHECK(values(unit.view(Role::kMaster, "u.bias")) == std::vector<double>(50, 0.0));
  CHECK(values(unit.view(Role::kMaster, "u.norm.weight")) == std::vector<double>(30, 1.0));
  CHECK(values(unit.view(Role::kMaster, "u.norm.bias")) == std::vector<double>(30, 0.0));
  CHECK(values(unit.view(Role::kMaster, "u.table").select(0, 1)) == std::vector<double>(64, 0.0));

  // The same tensor in another unit, with other neighbours and more rows.
  nn::UnitStorage other(Context{}, "v",
                        {{.name = "first", .shape = {7}, .kind = ParamKind::kBias},
                         {.name = "u.weight", .shape = {80, 30}, .init_std = 0.02}},
                        precision::Precision::kFp32, false);
  other.init(42);
  CHECK(bytes(other.view(Role::kMaster, "u.weight").narrow(0, 0, 50)) == bytes(unit.view(Role::kMaster, "u.weight")));
  nn::UnitStorage reseeded = storage(precision::Precision::kFp32);
  reseeded.init(43);
  CHECK(bytes(reseeded.flat(Role::kMaster)) != bytes(unit.flat(Role::kMaster)));
}

}  // namespace esm::test
