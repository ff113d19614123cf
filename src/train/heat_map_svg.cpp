#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "base/check.h"
#include "base/json_writer.h"
#include "train/heat_map.h"

namespace esm::train {
namespace {

struct Colour {
  int r, g, b;
};

// Viridis at 0, 1/9, ..., 1.
constexpr std::array kViridis{Colour{0x44, 0x01, 0x54}, Colour{0x48, 0x28, 0x78}, Colour{0x3e, 0x49, 0x89},
                              Colour{0x31, 0x68, 0x8e}, Colour{0x26, 0x82, 0x8e}, Colour{0x1f, 0x9e, 0x89},
                              Colour{0x35, 0xb7, 0x79}, Colour{0x6e, 0xce, 0x58}, Colour{0xb5, 0xde, 0x2b},
                              Colour{0xfd, 0xe7, 0x25}};

std::string hex(const Colour& c) { return fmt::format("#{:02x}{:02x}{:02x}", c.r, c.g, c.b); }

// t from 0 to 1.
std::string colour_at(double t) {
  const double place = std::clamp(t, 0.0, 1.0) * static_cast<double>(kViridis.size() - 1);
  const size_t low = std::min(static_cast<size_t>(place), kViridis.size() - 2);
  const double part = place - static_cast<double>(low);
  const Colour &a = kViridis[low], &b = kViridis[low + 1];
  const auto mix = [&](int x, int y) { return static_cast<int>(std::lround(x + part * (y - x))); };
  return hex({mix(a.r, b.r), mix(a.g, b.g), mix(a.b, b.b)});
}

// From figures to 0..1, over the finite ones (the positive ones on a logarithmic scale).
class Scale {
 public:
  explicit Scale(const HeatMap& map) : log_(map.log_scale) {
    for (const auto& cell : map.cells) {
      if (!cell.has_value())
        has_missing_ = true;
      else if (!std::isfinite(*cell))
        has_nonfinite_ = true;
      else if (log_ && *cell <= 0)
        has_zero_ = true;
      else
        widen(*cell);
    }
  }
  bool empty() const { return low_ > high_; }
  bool has_missing() const { return has_missing_; }
  bool has_nonfinite() const { return has_nonfinite_; }
  bool has_zero() const { return has_zero_; }
  bool one_value() const { return low_ == high_; }

  double part(double value) const {
    if (log_ && value <= 0) return 0;
    if (one_value()) return 0.5;
    return (mapped(value) - mapped(low_)) / (mapped(high_) - mapped(low_));
  }
  double value_at(double part) const {
    if (part <= 0) return low_;
    if (part >= 1) return high_;
    const double value = mapped(low_) + part * (mapped(high_) - mapped(low_));
    return log_ ? std::exp(value) : value;
  }

 private:
  void widen(double value) {
    low_ = std::min(low_, value);
    high_ = std::max(high_, value);
  }
  double mapped(double value) const { return log_ ? std::log(value) : value; }

  bool log_, has_missing_ = false, has_nonfinite_ = false, has_zero_ = false;
  double low_ = HUGE_VAL, high_ = -HUGE_VAL;
};

constexpr size_t kMostColumns = 160;
constexpr size_t kLongestLabel = 40;  // bytes; a longer name is cut in the picture and stands whole in its tooltip
constexpr double kTop = 44, kLegendWidth = 170, kCharacter = 6.6, kLegendHeight = 140;

struct Layout {
  double left, cell_width, cell_height, width, height;  // of the grid: width, height
};

Layout layout_of(const HeatMap& map) {
  size_t longest = 0;
  for (const std::string& row : map.rows) longest = std::max(longest, std::min(row.size(), kLongestLabel));
  const double columns = static_cast<double>(map.steps.size()), rows = static_cast<double>(map.rows.size());
  Layout layout{};
  layout.left = 34 + kCharacter * static_cast<double>(longest);
  layout.cell_width = std::clamp(std::floor(720 / columns), 5.0, 48.0);
  layout.cell_height = rows > 40 ? 13 : 18;
  layout.width = layout.cell_width * columns;
  layout.height = layout.cell_height * rows;
  return layout;
}

std::string short_name(const std::string& name) {
  size_t end = 0;
  while (end < name.size() && end < kLongestLabel) end += std::max<size_t>(utf8_length(name, end), 1);
  return end < name.size() ? name.substr(0, end) + "\xE2\x80\xA6" : name;
}

std::string text_at(double x, double y, std::string_view attributes, const std::string& text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\"{}{}>{}</text>\n", x, y, attributes.empty() ? "" : " ", attributes,
                     xml_escape(text));
}

std::string rectangle(double x, double y, double width, double height, std::string_view fill) {
  return fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\"", x, y, width,
                     height, fill);
}

std::string cross(double x, double y, double width, double height) {
  return fmt::format("<path d=\"M{0:.1f} {1:.1f}L{2:.1f} {3:.1f}M{0:.1f} {3:.1f}L{2:.1f} {1:.1f}\" stroke=\"#000\"/>\n",
                     x, y, x + width, y + height);
}

std::string cells(const HeatMap& map, const Scale& scale, const Layout& layout) {
  std::string out = "<g shape-rendering=\"crispEdges\">\n";  // no light lines between cells
  for (size_t row = 0; row < map.rows.size(); ++row) {
    for (size_t column = 0; column < map.steps.size(); ++column) {
      const auto& cell = map.at(row, column);
      const double x = layout.left + layout.cell_width * static_cast<double>(column);
      const double y = kTop + layout.cell_height * static_cast<double>(row);
      const bool finite = cell.has_value() && std::isfinite(*cell);
      const std::string fill = !cell.has_value() ? "url(#missing)" : finite ? colour_at(scale.part(*cell)) : "#fff";
      const std::string value = !cell.has_value() ? "no figure" : finite ? fmt::format("{:.4g}", *cell) : "not finite";
      out +=
          rectangle(x, y, layout.cell_width, layout.cell_height, fill) +
          fmt::format("><title>{}, step {}: {}</title></rect>\n", xml_escape(map.rows[row]), map.steps[column], value);
      if (cell.has_value() && !finite) out += cross(x, y, layout.cell_width, layout.cell_height);
    }
  }
  return out + "</g>\n";
}

std::string axes(const HeatMap& map, const Layout& layout) {
  std::string out;
  for (size_t row = 0; row < map.rows.size(); ++row)
    out += text_at(layout.left - 6, kTop + layout.cell_height * (static_cast<double>(row) + 0.5) + 4,
                   "text-anchor=\"end\"", short_name(map.rows[row]));
  // Steps are written from the newest back, as many as have room.
  double free_until = HUGE_VAL;
  for (size_t i = map.steps.size(); i > 0; --i) {
    const std::string text = fmt::format("{}", map.steps[i - 1]);
    const double x = layout.left + layout.cell_width * (static_cast<double>(i) - 0.5);
    const double half = kCharacter * static_cast<double>(text.size()) / 2 + 9;
    if (x + half > free_until) continue;
    out += text_at(x, kTop + layout.height + 15, "text-anchor=\"middle\"", text);
    free_until = x - half;
  }
  out += text_at(layout.left + layout.width / 2, kTop + layout.height + 34, "text-anchor=\"middle\"", "step");
  const double middle = kTop + layout.height / 2;
  out +=
      text_at(14, middle, fmt::format("text-anchor=\"middle\" transform=\"rotate(-90 14 {:.1f})\"", middle), "layer");
  return out;
}

std::string legend(const HeatMap& map, const Scale& scale, const Layout& layout) {
  const double x = layout.left + layout.width + 24;
  double y = kTop;
  std::string out;
  if (scale.empty()) {
    out += text_at(x, y + 12, "", map.log_scale ? "no figure above 0" : "no finite figure");
    y += 24;
  } else if (scale.one_value()) {
    out += rectangle(x, y, 16, 16, colour_at(0.5)) + "/>\n";
    out += text_at(x + 24, y + 12, "", fmt::format("{:.4g}", scale.value_at(0)));
    y += 24;
  } else {
    out += rectangle(x, y, 16, kLegendHeight, "url(#scale)") + " stroke=\"#444\"/>\n";
    constexpr int kTicks = 4;
    for (int i = 0; i <= kTicks; ++i) {
      const double part = static_cast<double>(i) / kTicks;
      out += text_at(x + 24, y + kLegendHeight * (1 - part) + 4, "", fmt::format("{:.4g}", scale.value_at(part)));
    }
    y += kLegendHeight + 20;
    out += text_at(x, y, "", map.log_scale ? "logarithmic scale" : "linear scale");
    y += 12;
  }
  const auto entry = [&](const std::string& shape, const std::string& text) {
    out += shape + text_at(x + 24, y + 12, "", text);
    y += 22;
  };
  if (scale.has_zero()) entry(rectangle(x, y, 16, 16, colour_at(0)) + "/>\n", "0 or less");
  if (scale.has_missing()) entry(rectangle(x, y, 16, 16, "url(#missing)") + "/>\n", "no figure");
  if (scale.has_nonfinite())
    entry(rectangle(x, y, 16, 16, "#fff") + " stroke=\"#444\"/>\n" + cross(x, y, 16, 16), "not finite");
  return out;
}

std::string definitions() {
  std::string out = "<defs>\n<linearGradient id=\"scale\" x1=\"0\" y1=\"1\" x2=\"0\" y2=\"0\">\n";
  for (size_t i = 0; i < kViridis.size(); ++i)
    out += fmt::format("<stop offset=\"{:.4f}\" stop-color=\"{}\"/>\n",
                       static_cast<double>(i) / static_cast<double>(kViridis.size() - 1), hex(kViridis[i]));
  return out +
         "</linearGradient>\n<pattern id=\"missing\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\">\n"
         "<rect width=\"5\" height=\"5\" fill=\"#ddd\"/><path d=\"M0 5L5 0\" stroke=\"#888\"/>\n</pattern>\n</defs>\n";
}

}  // namespace

std::string heat_map_svg(const HeatMap& whole) {
  ESM_CHECK(!whole.rows.empty() && !whole.steps.empty(), "a heat map without cells");
  const HeatMap map = thinned(whole, kMostColumns);
  const Layout layout = layout_of(map);
  const Scale scale(map);
  const std::string left_out = map.steps.size() < whole.steps.size()
                                   ? fmt::format(" ({} of {} steps)", map.steps.size(), whole.steps.size())
                                   : "";
  const double title_width = 24 + 8.4 * static_cast<double>(map.title.size() + left_out.size());
  const double width = std::max(layout.left + layout.width + kLegendWidth, title_width);
  const double height = kTop + std::max(layout.height + 46, kLegendHeight + 110);
  const std::string title = xml_escape(map.title + left_out);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"sans-serif\" font-size=\"12\">\n<title>{2}</title>\n",
      width, height, title);
  svg += definitions() + rectangle(0, 0, width, height, "#fff") + "/>\n";
  svg += text_at(12, 24, "font-size=\"15\"", map.title + left_out);
  return svg + cells(map, scale, layout) + axes(map, layout) + legend(map, scale, layout) + "</svg>\n";
}

std::string heat_map_html(const HeatMap& map) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<title>{}</title>\n</head>\n<body>\n{}"
      "</body>\n</html>\n",
      xml_escape(map.title), heat_map_svg(map));
}

std::string xml_escape(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const size_t length = utf8_length(text, i);
    const char c = text[i];
    const bool control = static_cast<unsigned char>(c) < 0x20 && c != '\t' && c != '\n';
    // U+FFFE and U+FFFF are well-formed UTF-8, but no characters of XML.
    const bool no_character =
        length == 3 && (text.compare(i, 3, "\xEF\xBF\xBE") == 0 || text.compare(i, 3, "\xEF\xBF\xBF") == 0);
    if (length == 0 || control || no_character)
      out += "\xEF\xBF\xBD";
    else if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else
      out.append(text, i, length);
    i += std::max<size_t>(length, 1);
  }
  return out;
}

}  // namespace esm::train
