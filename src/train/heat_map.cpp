#include "train/heat_map.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"

namespace esm::train {

HeatMap thinned(const HeatMap& map, size_t columns) {
  ESM_CHECK(columns > 0, "a heat map without columns");
  const size_t all = map.steps.size();
  if (columns >= all) return map;
  std::vector<size_t> chosen(columns, all - 1);
  for (size_t i = 0; i + 1 < columns; ++i) chosen[i] = (i * (all - 1) + (columns - 1) / 2) / (columns - 1);
  HeatMap thin{.title = map.title, .rows = map.rows, .steps = {}, .cells = {}, .log_scale = map.log_scale};
  for (const size_t column : chosen) thin.steps.push_back(map.steps[column]);
  for (size_t row = 0; row < map.rows.size(); ++row)
    for (const size_t column : chosen) thin.cells.push_back(map.at(row, column));
  return thin;
}

std::string heat_map_table(const HeatMap& map, size_t width) {
  const auto text_of = [](const std::optional<double>& cell) {
    return cell.has_value() ? fmt::format("{:.3g}", *cell) : std::string("-");
  };
  size_t label = 5, cell = 0;  // "layer"
  for (const std::string& row : map.rows) label = std::max(label, row.size());
  for (const int64_t step : map.steps) cell = std::max(cell, fmt::formatted_size("{}", step));
  for (const auto& value : map.cells) cell = std::max(cell, text_of(value).size());
  const size_t room = width > label ? (width - label) / (cell + 2) : 0;
  const HeatMap thin = thinned(map, std::max<size_t>(room, 1));

  std::string text = map.title + "\n";
  if (thin.steps.size() < map.steps.size())
    text += fmt::format("{} of {} steps\n", thin.steps.size(), map.steps.size());
  text += fmt::format("{:<{}}", "layer", label);
  for (const int64_t step : thin.steps) text += fmt::format("  {:>{}}", step, cell);
  text += "\n";
  for (size_t row = 0; row < thin.rows.size(); ++row) {
    text += fmt::format("{:<{}}", thin.rows[row], label);
    for (size_t column = 0; column < thin.steps.size(); ++column)
      text += fmt::format("  {:>{}}", text_of(thin.at(row, column)), cell);
    text += "\n";
  }
  return text;
}

}  // namespace esm::train
