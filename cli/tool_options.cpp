#include <algorithm>

#include "cli/options.h"

namespace flux2 {

namespace {

// Groups of generate's options, by title.
std::vector<OptionGroup> groups_of_generate(const std::vector<std::string>& titles) {
  std::vector<OptionGroup> groups;
  for (OptionGroup& group : generate_options())
    if (std::find(titles.begin(), titles.end(), group.title) != titles.end()) groups.push_back(std::move(group));
  return groups;
}

std::vector<OptionGroup> with_first(OptionGroup first, std::vector<OptionGroup> rest) {
  rest.insert(rest.begin(), std::move(first));
  return rest;
}

// Without options that mean nothing where every request makes one picture.
std::vector<OptionGroup> without(std::vector<OptionGroup> groups, const std::vector<std::string>& names) {
  for (OptionGroup& group : groups)
    std::erase_if(group.options,
                  [&](const OptionSpec& option) { return std::find(names.begin(), names.end(), option.name) != names.end(); });
  return groups;
}

}  // namespace

std::vector<OptionGroup> grid_options() {
  const OptionGroup axes = {
      "Axes",
      {{"x", 0, "OPTION=VALUES", "columns: steps=4,8 or seed=1..3 or cfg=1..4:0.5 or \"prompt=a fox|a cat\""},
       {"y", 0, "OPTION=VALUES", "rows"},
       {"z", 0, "OPTION=VALUES", "one table below the other"},
       {"cell", 0, "PX", "longest side of a picture on the sheet (default: as made)"},
       {"sheet-only", 0, "", "do not write the single pictures"}}};
  return with_first(axes, without(generate_options(), {"prompt-file", "batch", "repeat", "latents-out", "trace", "dry-run"}));
}

std::vector<OptionGroup> shell_options() {
  return without(generate_options(), {"prompt-file", "repeat", "from", "remix", "latents-out", "trace", "dry-run", "json"});
}

std::vector<OptionGroup> verify_options() {
  const OptionGroup own = {
      "Comparison",
      {{"tolerance", 0, "N", "largest difference of a pixel that passes, 0 to 255 (default: 0)"},
       {"input", 'i', "FILE", "the references of an edit, in their order (default: those beside the picture)", {}, true},
       {"lora", 0, "FILE|NAME[:W]", "the adapters of a picture made with some", {}, true},
       {"rounding", 0, "NAME", "nearest or trunc: how samples became 8 bits (default: nearest)"}}};
  return with_first(own, groups_of_generate({"Model", "Device and memory", "Messages"}));
}

std::vector<OptionGroup> upscale_options() {
  const OptionGroup own = {
      "Enlarging",
      {{"scale", 0, "X", "1 to 8 (default: 2)"},
       {"method", 0, "NAME", "lanczos, or redraw: generate it anew with the picture as reference (default: lanczos)"},
       {"prompt", 'p', "TEXT", "redraw: what it shows (default: the picture's own prompt)"},
       {"strength", 0, "X", "redraw: below 1 it begins with the enlarged picture and leaves it that far (default: 1)"},
       {"lora", 0, "FILE|NAME[:W]", "redraw: adapter with its strength", {}, true},
       {"align", 0, "on|off", "redraw: bring shift, scale and colours back to the original's (default: on)"},
       {"seed", 'S', "N", "redraw: 0 to 2^63-1 or random (default: random)"},
       {"negative", 'n', "TEXT", "redraw: what to avoid"}}};
  return with_first(own, groups_of_generate({"Sampling", "Output", "Model", "Device and memory", "Messages"}));
}

}  // namespace flux2
