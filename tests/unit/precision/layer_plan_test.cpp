// Which layer works in which recipe.
#include "precision/layer_plan.h"
#include "base/error.h"
#include "support/catch.h"

namespace esm::test {

using namespace precision;
using ByName = std::map<std::string, std::string>;

namespace {

constexpr Precision B = Precision::kBf16, D = Precision::kFp8Delayed, C = Precision::kFp8Current;

/// The problems of a model of 8 layers, "key: what" a line.
std::string problems(Precision whole, const ByName& layers, int64_t first = 0, int64_t last = 0, int64_t count = 8) {
  std::string text;
  for (const PlanProblem& problem : plan_problems(whole, layers, first, last, count))
    text += (text.empty() ? "" : "\n") + problem.key + ": " + problem.what;
  return text;
}

}  // namespace

TEST_CASE("layers have the recipe of the whole model, unless they are named or lie at an end") {
  CHECK(make_precision_plan(D, {}, 0, 0, 3).layers == std::vector{D, D, D});
  CHECK(make_precision_plan(D, {}, 1, 2, 5).layers == std::vector{B, D, D, B, B});
  CHECK(make_precision_plan(D, {{"bf16", "1-2, 5"}, {"fp8_current", " 4 "}}, 0, 0, 5).layers ==
        std::vector{B, B, D, C, B});
  CHECK(make_precision_plan(B, {{"fp8_delayed", "3-3,1"}}, 0, 0, 3).layers == std::vector{D, B, D});
  CHECK(make_precision_plan(D, {{"bf16", "1"}}, 1, 1, 3).layers == std::vector{B, D, B});
  CHECK(make_precision_plan(D, {}, 2, 2, 4).layers == std::vector{B, B, B, B});
  // Ends in BF16 are an exception to a quantized recipe only.
  CHECK(make_precision_plan(B, {{"fp8_delayed", "1"}}, 1, 0, 2).layers == std::vector{D, B});
  CHECK(make_precision_plan(Precision::kFp32, {}, 1, 1, 2).layers == std::vector(2, Precision::kFp32));
}

TEST_CASE("a plan tells whether any layer is quantized or has a history") {
  CHECK_FALSE(make_precision_plan(B, {}, 0, 0, 3).quantized());
  CHECK(make_precision_plan(B, {{"nvfp4", "2"}}, 0, 0, 3).quantized());
  CHECK_FALSE(make_precision_plan(C, {}, 0, 0, 3).delayed());
  CHECK(make_precision_plan(C, {{"fp8_delayed", "2"}}, 0, 0, 3).delayed());
}

TEST_CASE("what is no list of layers is refused with what to write") {
  const auto error = [](const std::string& list) { return problems(D, {{"bf16", list}}); };
  CHECK(error("") == "layer_precision: bf16: no layers; write e.g. \"1-4, 7\", or leave bf16 out");
  CHECK(error(" ") == error(""));
  for (const char* part : {"x", "1-", "-3", "1-2-3", "1 2", "+1", "1.0", "99999999999999999999"})
    CHECK(error(part) == std::string("layer_precision: bf16: '") + part +
                             "' is no layer and no range of layers; write e.g. \"1-4, 7\"");
  CHECK_THAT(error("1,,2"), ContainsSubstring("'' is no layer"));
  CHECK_THAT(error("1,"), ContainsSubstring("'' is no layer"));
  CHECK(error("0-2") == "layer_precision: bf16: '0-2': layers are counted from 1");
  CHECK(error("4-2") == "layer_precision: bf16: the range '4-2' runs backwards; write 2-4");
  CHECK(error("8-9") == "layer_precision: bf16: '8-9' goes beyond the model, whose layers are 1 to 8");
  CHECK(error("1-8").empty());
  CHECK(error("1-3, 3") == "layer_precision: bf16: layer 3 is named twice, here in '3' and for bf16");
}

TEST_CASE("recipes that do not exist or do not mix are refused") {
  CHECK(problems(D, {{"bf16", "1-3"}, {"fp8_current", "5, 2-4"}}) ==
        "layer_precision: fp8_current: layer 2 is named twice, here in '2-4' and for bf16");
  CHECK_THAT(problems(D, {{"fp8_curent", "1"}}),
             ContainsSubstring("layer_precision: there is no recipe 'fp8_curent', only bf16, fp8_delayed") &&
                 ContainsSubstring("did you mean fp8_current"));
  CHECK_THAT(problems(B, {{"fp32", "1"}}), ContainsSubstring("layer_precision: fp32: layers in FP32 cannot be mixed"));
  CHECK(problems(Precision::kFp32, {{"bf16", "1"}}) ==
        "layer_precision: needs a precision other than fp32; leave it out (or write layer_precision: {}), or use "
        "precision: bf16");
}

TEST_CASE("layers in BF16 at the ends go with the model and with what is named") {
  CHECK_THAT(problems(D, {}, 5, 4), ContainsSubstring("fp8.first_layers_bf16: the first 5 and last 4 layers"));
  CHECK_THAT(problems(B, {}, 0, 9), ContainsSubstring("fp8.last_layers_bf16: the first 0 and last 9 layers"));
  CHECK(problems(D, {}, 4, 4).empty());
  CHECK(problems(D, {{"fp8_current", "2-7"}}, 1, 1).empty());
  CHECK(problems(D, {{"fp8_current", "2-7"}}, 2, 2) ==
        "fp8.first_layers_bf16: 2 has layer 2 in BF16, layer_precision has it in fp8_current; take it out of one of "
        "them\nfp8.last_layers_bf16: 2 has layer 7 in BF16, layer_precision has it in fp8_current; take it out of one "
        "of them");
}

TEST_CASE("a model that is not known yet sets no limits, but all else is checked") {
  CHECK(problems(D, {{"bf16", "1000000-1000000000000"}}, 3, 50, 0).empty());
  CHECK_THAT(problems(D, {{"bf16", "7, 1-9"}}, 0, 0, 0), ContainsSubstring("layer 7 is named twice"));
  CHECK_THAT(problems(D, {{"fp8_current", "3"}}, 3, 0, 0), ContainsSubstring("fp8.first_layers_bf16: 3 has layer 3"));
}

TEST_CASE("a plan that cannot be made is a ConfigError with every problem") {
  try {
    make_precision_plan(D, {{"bf16", "9"}, {"mxfp", "1"}}, 0, 0, 8);
    FAIL("accepted");
  } catch (const ConfigError& e) {
    CHECK_THAT(e.what(), ContainsSubstring("layer_precision: bf16: '9' goes beyond the model") &&
                             ContainsSubstring("\nlayer_precision: there is no recipe 'mxfp'"));
  }
}

TEST_CASE("layers are told as ranges") {
  CHECK(layer_ranges({}).empty());
  CHECK(layer_ranges({3}) == "3");
  CHECK(layer_ranges({1, 2, 3, 5, 7, 8}) == "1-3, 5, 7-8");
}

}  // namespace esm::test
