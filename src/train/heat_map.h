// Figures by layer and step, as a table for a terminal and as a picture. Pure functions.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace esm::train {

struct HeatMap {
  std::string title;
  std::vector<std::string> rows;  // layers, from top to bottom
  std::vector<int64_t> steps;     // columns, rising
  /// rows x steps, row by row. nullopt: no figure; not finite: a figure that is not.
  std::vector<std::optional<double>> cells;
  bool log_scale = false;  // of the colours

  const std::optional<double>& at(size_t row, size_t column) const { return cells[row * steps.size() + column]; }
};

/// At most `columns` (at least 1) of the steps, evenly chosen; the newest is always among them, and the oldest when
/// there is room for two.
HeatMap thinned(const HeatMap& map, size_t columns);

/// A table of at most `width` characters a line (but with one column of figures at least): title, a line of steps, a
/// line a layer. "-" stands for no figure. Says so when steps were left out.
std::string heat_map_table(const HeatMap& map, size_t width);

/// A self-contained SVG 1.1 document in UTF-8: no scripts, no references. Colours: viridis of matplotlib (van der Walt
/// and Smith, CC0), even to the eye and readable with any colour blindness; no figure is hatched, one that is not
/// finite is crossed out. At most 160 steps, thinned like the table.
std::string heat_map_svg(const HeatMap& map);

/// A self-contained HTML page with that picture.
std::string heat_map_html(const HeatMap& map);

/// `text` for XML: markup escaped, what XML cannot hold replaced by U+FFFD.
std::string xml_escape(const std::string& text);

}  // namespace esm::train
