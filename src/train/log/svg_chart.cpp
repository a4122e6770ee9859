#include "train/log/svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "train/log/html_text.h"

namespace flux2 {

namespace {

constexpr double kLeft = 52, kRight = 10, kTop = 10, kBottom = 24;

// A log may hold any number; a range of 1e300 has no ticks.
bool drawable(double value) { return std::abs(value) < 1e30; }

struct AxisRange {
  double low = 0, high = 1;
};

// The step of 1, 2 or 5 times a power of ten that divides the range into nearest to `count` parts.
double tick_step(const AxisRange& range, int count) {
  const double raw = (range.high - range.low) / count;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  const double factor = raw / power;
  return power * (factor < 1.5 ? 1 : factor < 3.5 ? 2 : factor < 7.5 ? 5 : 10);
}

std::vector<double> ticks(const AxisRange& range, double step) {
  constexpr int kMost = 40;  // rounding may make a step too small to move anything
  std::vector<double> values;
  const double first = std::ceil(range.low / step);
  for (int k = 0; k < kMost && (first + k) * step <= range.high; ++k) values.push_back((first + k) * step);
  return values;
}

std::string tick_label(double value) {
  if (std::abs(value) >= 1e6) return fmt::format("{:g}M", value / 1e6);
  if (std::abs(value) >= 1e4) return fmt::format("{:g}k", value / 1e3);
  return fmt::format("{:g}", value);
}

// Where the values of a chart lie on its drawing.
struct Frame {
  AxisRange x, y;
  double width = 0, height = 0;

  double at_x(double v) const { return kLeft + (v - x.low) / (x.high - x.low) * (width - kLeft - kRight); }
  double at_y(double v) const {
    return height - kBottom - (std::clamp(v, y.low, y.high) - y.low) / (y.high - y.low) * (height - kTop - kBottom);
  }
};

AxisRange widened(AxisRange range) {
  if (range.high > range.low) return range;
  const double margin = range.low == 0 ? 1 : std::abs(range.low) * 0.1;
  return {range.low - margin, range.high + margin};
}

AxisRange x_range(const Chart& chart) {
  AxisRange range{std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()};
  for (const ChartSeries& s : chart.series)
    for (const auto& [x, y] : s.points)
      if (std::isfinite(y)) range = {std::min(range.low, x), std::max(range.high, x)};
  return widened(range);
}

AxisRange y_range(const Chart& chart) {
  std::vector<double> values;
  for (const ChartSeries& s : chart.series)
    for (const auto& [x, y] : s.points)
      if (std::isfinite(y)) values.push_back(y);
  std::sort(values.begin(), values.end());
  const size_t cut = chart.cut_outliers ? values.size() / 100 : 0;
  AxisRange range{values[cut], values[values.size() - 1 - cut]};
  if (chart.from_zero) range.low = std::min(0.0, range.low);
  range = widened(range);
  const double margin = 0.05 * (range.high - range.low);
  if (!chart.from_zero || range.low < 0) range.low -= range.low >= 0 ? std::min(margin, range.low) : margin;
  range.high += margin;
  return range;
}

std::string value_grid(const Frame& f) {
  std::string out;
  for (const double v : ticks(f.y, tick_step(f.y, 4)))
    out += fmt::format(R"(<path class="grid" d="M{:.1f} {:.1f}H{:.1f}"/><text x="{:.1f}" y="{:.1f}" class="ty">{}</text>)", kLeft,
                       f.at_y(v), f.width - kRight, kLeft - 6, f.at_y(v) + 4, tick_label(v));
  return out;
}

std::string step_labels(const Frame& f) {
  std::string out;
  for (const double v : ticks(f.x, std::max(1.0, tick_step(f.x, static_cast<int>(f.width / 90)))))
    out += fmt::format(R"(<text x="{:.1f}" y="{:.1f}" class="tx">{}</text>)", f.at_x(v), f.height - 7, tick_label(v));
  return out;
}

// At most two points a column of pixels, the smallest and the largest, so that peaks stay.
std::vector<std::pair<double, double>> thinned(const std::vector<std::pair<double, double>>& points, size_t columns) {
  if (points.size() <= 2 * columns) return points;
  std::vector<std::pair<double, double>> kept;
  for (size_t c = 0; c < columns; ++c) {
    const auto begin = points.begin() + static_cast<std::ptrdiff_t>(c * points.size() / columns);
    const auto end = points.begin() + static_cast<std::ptrdiff_t>((c + 1) * points.size() / columns);
    auto low = end, high = end;
    for (auto at = begin; at != end; ++at) {
      if (!std::isfinite(at->second)) continue;
      if (low == end || at->second < low->second) low = at;
      if (high == end || at->second > high->second) high = at;
    }
    if (low == end) {
      kept.emplace_back(begin->first, std::numeric_limits<double>::quiet_NaN());
      continue;
    }
    kept.push_back(std::min(low, high) == low ? *low : *high);
    if (low != high) kept.push_back(std::min(low, high) == low ? *high : *low);
  }
  return kept;
}

std::string line_path(const Frame& f, const ChartSeries& s, size_t colour) {
  std::string path;
  bool drawing = false;
  for (const auto& [x, y] : thinned(s.points, static_cast<size_t>(f.width))) {
    if (std::isfinite(y)) path += fmt::format("{}{:.1f} {:.1f}", drawing ? 'L' : 'M', f.at_x(x), f.at_y(y));
    drawing = std::isfinite(y);
  }
  const bool faint = s.look == ChartSeries::Look::Faint;
  return fmt::format(R"(<path class="line c{}{}" d="{}"/>)", colour, faint ? " faint" : "", path);
}

std::string dots(const Frame& f, const ChartSeries& s, size_t colour) {
  std::string out;
  for (const auto& [x, y] : thinned(s.points, 60))
    if (std::isfinite(y))
      out += fmt::format(R"(<circle class="dot c{}" cx="{:.1f}" cy="{:.1f}" r="3"/>)", colour, f.at_x(x), f.at_y(y));
  return out;
}

// Bands that show their values when the pointer rests on them; a page without scripts has no other way.
std::string hover_bands(const Frame& f, const Chart& chart) {
  constexpr size_t kBands = 60;
  std::string out;
  const double width = (f.width - kLeft - kRight) / kBands;
  for (size_t b = 0; b < kBands; ++b) {
    const double left = kLeft + width * static_cast<double>(b);
    const double middle = f.x.low + (static_cast<double>(b) + 0.5) / kBands * (f.x.high - f.x.low);
    std::string text;
    for (const ChartSeries& s : chart.series) {
      if (s.points.empty()) continue;
      auto at = std::lower_bound(s.points.begin(), s.points.end(), middle, [](const auto& p, double x) { return p.first < x; });
      if (at == s.points.end() || (at != s.points.begin() && middle - std::prev(at)->first < at->first - middle)) --at;
      if (text.empty()) text = fmt::format("step {}", static_cast<int64_t>(at->first));
      text += fmt::format("\n{} {}", s.label.empty() ? html_text(chart.title) : html_text(s.label), short_number(at->second));
    }
    out += fmt::format(R"(<rect class="band" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"><title>{}</title></rect>)",
                       left, kTop, width, f.height - kTop - kBottom, text);
  }
  return out;
}

std::string legend(const std::vector<std::string>& labels) {
  std::string out;
  for (size_t i = 0; i < labels.size(); ++i)
    if (!labels[i].empty()) out += fmt::format(R"(<span class="key"><i class="c{}"></i>{}</span>)", i % 6, html_text(labels[i]));
  return out.empty() ? "" : R"(<div class="legend">)" + out + "</div>";
}

std::string figure(const std::string& title, const std::string& drawing, const std::string& keys, int width, int height) {
  return fmt::format(
      R"(<figure><figcaption>{}</figcaption><svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>{}</figure>)",
      html_text(title), width, height, html_text(title), drawing, keys);
}

}  // namespace

std::string svg_chart(const Chart& given) {
  Chart chart = given;
  bool any = false;
  for (ChartSeries& s : chart.series)
    for (auto& [x, y] : s.points) {
      if (!drawable(y)) y = std::numeric_limits<double>::quiet_NaN();
      any = any || std::isfinite(y);
    }
  if (!any) return {};
  const Frame f{x_range(chart), y_range(chart), static_cast<double>(chart.width), static_cast<double>(chart.height)};
  std::string drawing = value_grid(f) + step_labels(f);
  std::vector<std::string> labels;
  for (size_t i = 0; i < chart.series.size(); ++i) {
    const ChartSeries& s = chart.series[i];
    const bool empty = std::none_of(s.points.begin(), s.points.end(), [](const auto& p) { return std::isfinite(p.second); });
    labels.push_back(empty ? "" : s.label);
    if (empty) continue;
    drawing += line_path(f, s, i % 6);
    if (s.look == ChartSeries::Look::Dots || s.points.size() == 1) drawing += dots(f, s, i % 6);
  }
  drawing += hover_bands(f, chart);
  return figure(chart.title, drawing, legend(labels), chart.width, chart.height);
}

std::string svg_bars(const BarChart& chart) {
  double highest = 0;
  for (const BarGroup& g : chart.groups)
    for (const double v : g.values)
      if (drawable(v)) highest = std::max(highest, v);
  if (highest <= 0) return {};
  const auto groups = static_cast<double>(chart.groups.size()), bars = static_cast<double>(chart.series.size());
  const Frame f{{0, groups}, {0, highest * 1.05}, static_cast<double>(chart.width), static_cast<double>(chart.height)};
  std::string drawing = value_grid(f);
  const double group_width = (f.width - kLeft - kRight) / groups, bar_width = group_width * 0.8 / bars;
  for (size_t g = 0; g < chart.groups.size(); ++g) {
    const double left = f.at_x(static_cast<double>(g)) + group_width * 0.1;
    for (size_t s = 0; s < chart.groups[g].values.size(); ++s) {
      const double v = chart.groups[g].values[s];
      if (!drawable(v)) continue;
      drawing += fmt::format(
          R"(<rect class="bar c{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"><title>{}: {}</title></rect>)", s % 6,
          left + bar_width * static_cast<double>(s), f.at_y(v), bar_width * 0.94, f.height - kBottom - f.at_y(v),
          html_text(chart.series[s]), short_number(v));
    }
    drawing += fmt::format(R"(<text x="{:.1f}" y="{:.1f}" class="tx">{}</text>)", left + group_width * 0.4, f.height - 7,
                           html_text(chart.groups[g].label));
  }
  return figure(chart.title, drawing, legend(chart.series), chart.width, chart.height);
}

}  // namespace flux2
