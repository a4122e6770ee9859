#include "cli/grid_axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "cli/options.h"

namespace flux2 {

namespace {

constexpr size_t kMostValues = 256;

// Options that decide about one picture.
std::vector<std::string> axis_options() {
  std::vector<std::string> names;
  for (const OptionGroup& group : generate_options()) {
    const bool fits = group.title == "Image" || group.title == "Model" || group.title == "Sampling";
    for (const OptionSpec& option : group.options) {
      if (option.is_later() || option.value.empty()) continue;
      if (fits || option.name == "profile" || option.name == "quant" || option.name == "rounding") names.push_back(option.name);
    }
  }
  for (const char* other : {"prompt-file", "wildcards", "from", "remix", "batch", "repeat", "save-merged", "save-merged-model"})
    std::erase(names, other);
  return names;
}

std::string option_named(std::string name) {
  if (name.starts_with("lora:") && name.size() > 5) return name;
  std::replace(name.begin(), name.end(), '_', '-');
  if (name == "lora")
    throw Error(ErrorCode::InvalidArgument, "an axis of adapters names one", "--y \"lora:style=0,0.5,1\" compares its strengths");
  const auto names = axis_options();
  if (std::find(names.begin(), names.end(), name) != names.end()) return name;
  const std::string near = nearest_word(name, names);
  throw Error(
      ErrorCode::InvalidArgument, fmt::format("\"{}\" cannot be an axis", name),
      near.empty() ? "an axis is an option of an image: steps, seed, cfg, prompt, model, size, …" : "did you mean " + near + "?");
}

std::optional<double> number(std::string_view text) {
  double value = 0;
  const auto [stop, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || stop != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

// "1..3" → 1 2 3; "1..2:0.5" → 1 1.5 2. Nothing when it is no range.
std::vector<std::string> range(std::string_view text) {
  const size_t dots = text.find("..");
  if (dots == text.npos) return {};
  const size_t colon = text.find(':', dots);
  const auto first = number(text.substr(0, dots));
  const auto last = number(text.substr(dots + 2, colon == text.npos ? colon : colon - dots - 2));
  const auto step = colon == text.npos ? std::optional(1.0) : number(text.substr(colon + 1));
  if (!first || !last || !step) return {};
  check(*step > 0 && *first <= *last, "\"{}\": a range is first..last or first..last:step, upwards", text);
  const double count = std::floor((*last - *first) / *step + 1e-9) + 1;
  check(count <= static_cast<double>(kMostValues), "\"{}\" has more than {} values", text, kMostValues);
  std::vector<std::string> values;
  for (int i = 0; i < static_cast<int>(count); ++i)
    values.push_back(fmt::format("{}", std::round((*first + i * *step) * 1e9) / 1e9));
  return values;
}

}  // namespace

std::string GridAxis::label(size_t index) const {
  const std::string& value = values[index];
  if (option == "prompt") return value;
  const bool path = option == "model" || option == "input" || option == "dit" || option == "vae";
  if (option.starts_with("lora:")) return std::filesystem::path(option.substr(5)).stem().string() + " " + value;
  return option + " " + (path ? std::filesystem::path(value).filename().string() : value);
}

GridAxis parse_grid_axis(std::string_view text) {
  const size_t equals = text.find('=');
  if (equals == text.npos)
    throw Error(ErrorCode::InvalidArgument, fmt::format("axis \"{}\" has no values", text),
                "write it like steps=4,8 or seed=1..3");
  GridAxis axis{option_named(std::string(text.substr(0, equals))), {}};
  text.remove_prefix(equals + 1);
  const char separator = axis.option == "prompt" || text.find('|') != text.npos ? '|' : ',';
  while (true) {
    const size_t end = std::min(text.find(separator), text.size());
    const std::string_view value = text.substr(0, end);
    const std::vector<std::string> counted = axis.option == "prompt" ? std::vector<std::string>{} : range(value);
    if (counted.empty()) axis.values.emplace_back(value);
    else axis.values.insert(axis.values.end(), counted.begin(), counted.end());
    if (end == text.size()) break;
    text.remove_prefix(end + 1);
  }
  for (const std::string& value : axis.values)
    check(!value.empty() || axis.option == "prompt", "an empty value for {}", axis.option);
  check(axis.values.size() <= kMostValues, "axis {} has more than {} values", axis.option, kMostValues);
  return axis;
}

}  // namespace flux2
