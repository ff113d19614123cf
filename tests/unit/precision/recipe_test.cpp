// The table of recipes, and what follows from a row.
#include <set>

#include "base/error.h"
#include "precision/recipe.h"
#include "support/catch.h"

namespace esm::test {

using namespace precision;

namespace {
constexpr GemmRole kRoles[] = {GemmRole::kForward, GemmRole::kDgrad, GemmRole::kWgrad};
}

TEST_CASE("every precision has one recipe, in the order of the enum, and runs choose among their names") {
  std::set<std::string_view> names;
  for (size_t i = 0; i < recipes().size(); ++i) {
    CHECK(static_cast<size_t>(recipes()[i].precision) == i);
    CHECK(&find_recipe(static_cast<Precision>(i)) == &recipes()[i]);
    names.insert(recipes()[i].name);
  }
  CHECK(names.size() == recipes().size());
  CHECK(recipes().back().precision == Precision::kNvfp4);
  const auto choices = enum_names(Precision{});
  REQUIRE(choices.size() == recipes().size());
  for (size_t i = 0; i < choices.size(); ++i) CHECK(recipes()[i].name == choices[i]);
}

TEST_CASE("no recipe asks for a GEMM that tensor cores of its kind refuse") {
  for (const Recipe& recipe : recipes()) {
    INFO(recipe.name);
    for (const GemmRole role : kRoles) {
      const GemmFormats& g = recipe.gemm(role);
      CHECK(g.a.quantized() == g.b.quantized());
      CHECK_FALSE((g.a.format == Format::kE5M2 && g.b.format == Format::kE5M2));
      CHECK_FALSE((g.a.grouping == Grouping::kBlock128 && g.b.grouping == Grouping::kBlock128));
      CHECK((g.a.timing == Timing::kCurrent || g.a.grouping == Grouping::kTensor));
      // Fast sums: never over tokens, and only where one factor of each side is applied to a finished sum.
      const bool one_factor = g.a.grouping == Grouping::kTensor || g.a.grouping == Grouping::kOuter;
      CHECK(g.fast_accumulation == (one_factor && role != GemmRole::kWgrad));
    }
    // An operand is quantized once for each direction: X, W and dY are the same in all roles.
    CHECK(recipe.forward.a == recipe.wgrad.b);
    CHECK(recipe.forward.b == recipe.dgrad.b);
    CHECK(recipe.dgrad.a == recipe.wgrad.a);
    CHECK(recipe.wgrad.result == recipe.gradient);
    CHECK(recipe.delayed() == (recipe.precision == Precision::kFp8Delayed));
  }
  const DelayedScaling& delay = find_recipe(Precision::kFp8Delayed).delay;
  CHECK(delay.history_steps == 1024);
  CHECK(delay.choice == kernels::AmaxChoice::kMax);
  CHECK(delay.margin == 0);
}

TEST_CASE("what a GEMM does is told in a line") {
  const auto line = [](Precision precision, GemmRole role, bool emulated = false) {
    return describe(find_recipe(precision).gemm(role), emulated);
  };
  CHECK(line(Precision::kBf16, GemmRole::kForward) == "BF16 x BF16 to BF16");
  CHECK(line(Precision::kFp8Delayed, GemmRole::kForward) ==
        "E4M3 (tensor, delayed) x E4M3 (tensor, delayed) to BF16, fast sums");
  CHECK(line(Precision::kFp8Delayed, GemmRole::kDgrad, true) ==
        "E5M2 (tensor, delayed) x E4M3 (tensor, delayed) to BF16, emulated");
  CHECK(line(Precision::kFp8Delayed, GemmRole::kWgrad) == "E5M2 (tensor, delayed) x E4M3 (tensor, delayed) to F32");
  CHECK(line(Precision::kFp8Block, GemmRole::kDgrad) == "E4M3 (1x128) x E4M3 (128x128) to BF16");
  CHECK(line(Precision::kFp8Outer, GemmRole::kDgrad) == "E4M3 (row) x E4M3 (row) to BF16, fast sums");
  CHECK(line(Precision::kMxfp8, GemmRole::kForward, true) == "E4M3 (1x32) x E4M3 (1x32) to BF16, emulated");
  CHECK(line(Precision::kNvfp4, GemmRole::kForward, true) ==
        "E2M1 (1x16 and tensor) x E2M1 (1x16 and tensor) to BF16, emulated");
}

TEST_CASE("sizes of codes and scales, uneven ones too") {
  const auto of = [](Precision precision, int64_t rows, int64_t k) {
    return layout(find_recipe(precision).forward.b, rows, k);
  };
  CHECK(of(Precision::kFp8Current, 33, 65).code_bytes == 65);
  CHECK(of(Precision::kFp8Current, 33, 65).scales == 1);
  CHECK(of(Precision::kFp8Outer, 33, 65).scales == 33);
  CHECK(of(Precision::kFp8Block, 129, 128 * 5).scales == 2 * 8);
  CHECK(layout(find_recipe(Precision::kFp8Block).forward.a, 33, 129).scales == 2 * 33);
  CHECK(of(Precision::kMxfp8, 33, 65).scales == 128 * 4);  // 3 groups a row
  CHECK(of(Precision::kMxfp8, 129, 65).scales == 2 * 128 * 4);
  CHECK(of(Precision::kMxfp8, 33, 65).scales_are_bytes);
  CHECK(of(Precision::kNvfp4, 33, 65).scales == 128 * 8);  // 5 groups a row
  CHECK(of(Precision::kNvfp4, 33, 65).code_bytes == 33);
  CHECK_THROWS_AS(layout({.format = Format::kBF16}, 1, 1), InternalError);
  CHECK_THROWS_AS(greatest(Format::kBF16), InternalError);
}

}  // namespace esm::test
