#pragma once

#include <string>
#include <utility>
#include <vector>

namespace flux2 {

struct ChartSeries {
  std::string label;                              // empty: not in the legend
  std::vector<std::pair<double, double>> points;  // by x; a NaN interrupts the line
  enum class Look { Line, Faint, Dots } look = Look::Line;
};

struct Chart {
  std::string title;
  std::vector<ChartSeries> series;
  bool from_zero = false;         // the y axis begins at 0
  bool cut_outliers = false;      // the y axis shows all but the most extreme values
  int width = 440, height = 230;  // of the drawing's own units, which are about pixels
};

// A chart as an SVG element whose colours come from the style of the page (report.cpp). Charts of more points than pixels are
// thinned out. Empty if no series has a point.
std::string svg_chart(const Chart& chart);

struct BarGroup {
  std::string label;
  std::vector<double> values;  // one a series; NaN: no bar
};

struct BarChart {
  std::string title;
  std::vector<std::string> series;
  std::vector<BarGroup> groups;
  int width = 440, height = 230;
};
std::string svg_bars(const BarChart& chart);

}  // namespace flux2
