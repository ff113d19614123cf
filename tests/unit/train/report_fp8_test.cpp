#include "train/report_fp8.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <sstream>

#include "base/check.h"
#include "support/catch.h"
#include "support/xml.h"

using namespace esm;
using namespace esm::train;
using esm::test::xml_problem;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TensorStatistics tensor(const std::string& layer, const std::string& name, double value) {
  return {.layer = layer, .tensor = name, .amax = value, .scale = value, .underflow = value, .overflow = value};
}

std::vector<StepStatistics> sample() {
  return {{.step = 10,
           .tensors = {tensor("layers.0", "fc1.x", 0.1), tensor("layers.0", "fc1.dy", 0.3),
                       tensor("layers.1", "fc1.x", 0.5), tensor("layers.1", "fc1.dy", kNan)},
           .layers = {{.layer = "layers.0", .mean = -1, .variance = 2, .grad_norm = 3}}},
          {.step = 20, .tensors = {tensor("layers.0", "fc1.x", 0.7)}, .layers = {}}};
}

HeatMap grid(size_t rows, size_t columns) {
  HeatMap map{.title = "amax", .rows = {}, .steps = {}, .cells = {}, .log_scale = true};
  for (size_t i = 0; i < rows; ++i) map.rows.push_back(fmt::format("layers.{}", i));
  for (size_t i = 0; i < columns; ++i) map.steps.push_back(static_cast<int64_t>(100 * (i + 1)));
  for (size_t i = 0; i < rows * columns; ++i) map.cells.emplace_back(1.0 + static_cast<double>(i));
  return map;
}

}  // namespace

TEST_CASE("the XML check of these tests finds mistakes") {
  CHECK(xml_problem("<a b=\"1\"><c/>x &amp; y</a>\n").empty());
  for (const std::string bad : {"<a>", "<a></b>", "<a b=1/>", "<a>&</a>", "<a/><a/>", "<a b=\"1\" b=\"2\"/>", "",
                                "<a>x</a>y", "<a b=\"<\"/>", "<a>a > b</a>"}) {
    CAPTURE(bad);
    CHECK_FALSE(xml_problem(bad).empty());
  }
}

TEST_CASE("a figure by layer and step: the telling tensor, or one tensor") {
  const HeatMap all = fp8_heat_map(sample(), "underflow", "");
  CHECK(all.rows == std::vector<std::string>{"layers.0", "layers.1"});
  CHECK(all.steps == std::vector<int64_t>{10, 20});
  CHECK(all.at(0, 0) == 0.3);
  CHECK(all.at(0, 1) == 0.7);
  CHECK(std::isnan(all.at(1, 0).value()));
  CHECK_FALSE(all.at(1, 1).has_value());
  CHECK_FALSE(all.log_scale);
  CHECK_THAT(all.title, ContainsSubstring("greatest"));
  CHECK(fp8_heat_map(sample(), "scale", "").at(0, 0) == 0.1);
  CHECK(fp8_heat_map(sample(), "amax", "").log_scale);
  const HeatMap one = fp8_heat_map(sample(), "overflow", "fc1.x");
  CHECK(one.at(0, 0) == 0.1);
  CHECK(one.at(1, 0) == 0.5);
  CHECK_THAT(one.title, ContainsSubstring("of fc1.x"));
  CHECK(fp8_heat_map(sample(), "mean", "").at(0, 0) == -1);
  CHECK(fp8_heat_map(sample(), "variance", "").at(0, 0) == 2);
  CHECK(fp8_heat_map(sample(), "grad_norm", "").at(0, 0) == 3);
  auto later = sample();  // a layer that a later row brings keeps its place
  later.push_back(
      {.step = 30,
       .tensors = {tensor("embedding", "x", 1), tensor("layers.0", "fc1.x", 2), tensor("layers.0b", "x", 3)},
       .layers = {}});
  const HeatMap grown = fp8_heat_map(later, "amax", "");
  CHECK(grown.rows == std::vector<std::string>{"embedding", "layers.0", "layers.0b", "layers.1"});
  CHECK(grown.at(2, 2) == 3);
  CHECK(grown.at(1, 1) == 0.7);
  CHECK_FALSE(grown.at(0, 1).has_value());
  CHECK_THROWS_WITH(fp8_heat_map(sample(), "undreflow", ""), ContainsSubstring("did you mean underflow"));
  CHECK_THROWS_WITH(fp8_heat_map(sample(), "amax", "fc1.y"), ContainsSubstring("fc1.x, fc1.dy; did you mean"));
  CHECK_THROWS_AS(fp8_heat_map(sample(), "mean", "fc1.x"), ConfigError);
  CHECK_THROWS_AS(fp8_heat_map({{.step = 1, .tensors = {}, .layers = {}}}, "mean", ""), DataError);
}

TEST_CASE("thinning keeps the newest step and takes each step once") {
  const HeatMap map = grid(3, 50);
  for (size_t columns = 1; columns <= 60; ++columns) {
    CAPTURE(columns);
    const HeatMap thin = thinned(map, columns);
    REQUIRE(thin.steps.size() == std::min<size_t>(columns, 50));
    CHECK(thin.steps.back() == 5000);
    if (columns > 1) CHECK(thin.steps.front() == 100);
    CHECK(std::adjacent_find(thin.steps.begin(), thin.steps.end(), std::greater_equal<>()) == thin.steps.end());
    for (size_t i = 0; i < thin.steps.size(); ++i)
      CHECK(thin.at(2, i) == map.at(2, static_cast<size_t>(thin.steps[i] / 100 - 1)));
  }
}

TEST_CASE("the table fits the terminal and shows what is missing") {
  CHECK(heat_map_table(fp8_heat_map(sample(), "underflow", "fc1.dy"), 80) ==
        "underflow (share of codes that are 0) of fc1.dy\n"
        "layer      10   20\n"
        "layers.0  0.3    -\n"
        "layers.1  nan    -\n");
  for (const size_t width : {30, 79, 100}) {
    std::istringstream lines(heat_map_table(grid(3, 50), width));
    size_t longest = 0;
    for (std::string line; std::getline(lines, line);) longest = std::max(longest, line.size());
    CHECK(longest <= width);
    CHECK(longest > width - 8);
  }
  CHECK_THAT(heat_map_table(grid(3, 50), 5), ContainsSubstring("1 of 50 steps") && ContainsSubstring("5000"));
}

TEST_CASE("pictures are well-formed, whatever the figures and names are") {
  HeatMap odd = grid(5, 9);
  odd.rows = {"a<b>&\"'", std::string("nul\0bell\a", 9), "bad utf-8 \xff\xc3", std::string(200, 'x') + "\xC3\xA9", ""};
  odd.title = "x < y & \"z\"";
  odd.cells[0] = std::nullopt;
  odd.cells[1] = kNan;
  odd.cells[2] = -HUGE_VAL;
  odd.cells[3] = 0;
  odd.cells[4] = -5;
  HeatMap nothing = grid(2, 2);
  for (auto& cell : nothing.cells) cell = std::nullopt;
  HeatMap flat = grid(2, 2);
  for (auto& cell : flat.cells) cell = 0;
  for (HeatMap map : {odd, grid(1, 1), grid(1, 500), grid(60, 1), grid(36, 300), nothing, flat}) {
    for (const bool log_scale : {true, false}) {
      map.log_scale = log_scale;
      const std::string svg = heat_map_svg(map);
      CHECK(xml_problem(svg) == "");
      CHECK(count(svg, ", step ") == map.rows.size() * std::min<size_t>(map.steps.size(), 160));
      for (const std::string number : {"\"nan", "\"-nan", "\"inf", "\"-inf", ">nan", ">inf"})
        CHECK(count(svg, number) == 0);
      const std::string html = heat_map_html(map);
      CHECK(html.starts_with("<!DOCTYPE html>\n"));
      CHECK(xml_problem(html.substr(html.find('\n') + 1)) == "");
      for (const std::string word : {"<script", "href", "src="}) CHECK(count(html, word) == 0);
    }
  }
}

TEST_CASE("colours follow the figures, and the legend explains them") {
  HeatMap map = grid(1, 4);
  map.cells = {1e-3, 1e-2, 1.0, std::nullopt};
  std::string svg = heat_map_svg(map);
  const auto cell = [&](const std::string& fill, int step, const std::string& value) {
    CAPTURE(fill, step, value);
    CHECK_THAT(svg,
               ContainsSubstring(fmt::format("fill=\"{}\"><title>layers.0, step {}: {}</title>", fill, step, value)));
  };
  cell("#440154", 100, "0.001");
  cell("#31688e", 200, "0.01");  // viridis at 1/3
  cell("#fde725", 300, "1");
  cell("url(#missing)", 400, "no figure");
  for (const std::string text : {">logarithmic scale<", ">0.03162<", ">no figure<", ">step<", ">layer<", ">amax<"})
    CHECK_THAT(svg, ContainsSubstring(text));
  CHECK(count(svg, "not finite") == 0);
  map.log_scale = false;
  map.cells = {-1.0, 1.0, 5.0, kNan};
  svg = heat_map_svg(map);
  cell("#440154", 100, "-1");
  cell("#31688e", 200, "1");
  cell("#fde725", 300, "5");
  cell("#fff", 400, "not finite");
  for (const std::string text : {">linear scale<", ">3.5<", ">not finite<"}) CHECK_THAT(svg, ContainsSubstring(text));
  CHECK(count(svg, ">no figure<") == 0);
}
