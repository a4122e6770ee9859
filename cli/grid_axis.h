#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace flux2 {

// One axis of a comparison: an option and the values it takes.
struct GridAxis {
  std::string option;  // long name; "lora:FILE" for the strengths of an adapter
  std::vector<std::string> values;

  std::string label(size_t index) const;  // "steps 4"; of prompts the text alone, of files the base name
};

// "steps=4,8", "seed=1..3", "cfg=1..4:0.5" or, where | separates, "prompt=a fox|a cat". Throws InvalidArgument for options that
// do not affect an image, and names the nearest one that does.
GridAxis parse_grid_axis(std::string_view text);

}  // namespace flux2
