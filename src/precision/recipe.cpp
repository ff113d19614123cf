#include "precision/recipe.h"

#include "base/check.h"

namespace esm::precision {
namespace {

constexpr DType F32 = DType::kF32;
constexpr DType BF16 = DType::kBF16;

constexpr Recipe kRecipes[] = {
    {.precision = Precision::kFp32,
     .name = "fp32",
     .compute = F32,
     .forward = {F32, F32, F32},
     .dgrad = {F32, F32, F32},
     .wgrad = {F32, F32, F32},
     .master = F32,
     .gradient = F32},
    {.precision = Precision::kBf16,
     .name = "bf16",
     .compute = BF16,
     .forward = {BF16, BF16, BF16},
     .dgrad = {BF16, BF16, BF16},
     .wgrad = {BF16, BF16, F32},
     .master = F32,
     .gradient = F32},
};

}  // namespace

std::span<const Recipe> recipes() { return kRecipes; }

const Recipe& find_recipe(Precision precision) {
  for (const Recipe& recipe : kRecipes)
    if (recipe.precision == precision) return recipe;
  fail<InternalError>("internal error: no recipe for precision {}", static_cast<int>(precision));
}

}  // namespace esm::precision
