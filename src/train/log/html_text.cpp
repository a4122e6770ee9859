#include "train/log/html_text.h"

#include <fmt/core.h>

#include <cmath>

#include "base/foreign_text.h"

namespace flux2 {

std::string html_text(std::string_view text) {
  std::string out;
  for (const char c : visible_text(text)) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  }
  return out;
}

std::string short_number(double value) { return std::isfinite(value) ? fmt::format("{:.4g}", value) : "–"; }

}  // namespace flux2
