#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace flux2 {

// One image to make between training steps.
struct SamplePrompt {
  std::string prompt;
  std::string negative = " ";
  std::optional<int64_t> width, height;  // empty: 256, or those of a smaller model
  std::optional<int64_t> steps;          // empty: 20, or those of the model if it needs fewer
  std::optional<uint64_t> seed;          // empty: the seed option of the run, else 42
  std::optional<double> guidance;        // true guidance of base models, the input of dev
  std::optional<double> flow_shift;
  std::vector<std::string> references;     // paths
  std::vector<std::string> image_prompts;  // paths, for training an image-prompt adapter
};

// musubi-tuner's text format: one prompt a line, `#` starts a comment line, options follow as
// ` --w 512 --h 512 --s 20 --d 42 --g 4 --n NEGATIVE --fs SHIFT --ci IMAGE`; `--ip IMAGE`, an image prompt, is ours.
// Its options without a meaning for FLUX.2 (l, f, i, ei, cn, of) are accepted.
std::vector<SamplePrompt> sample_prompts_from_text(std::string_view text);

// A list of texts in that format or of objects {"prompt", "negative_prompt", "width", "height", "sample_steps", "seed",
// "guidance_scale", "discrete_flow_shift", "control_image_path", "image_prompt"}; or the TOML form {"prompt": {…, "subset":
// [{…}]}}, where a subset's value has priority over the common one.
std::vector<SamplePrompt> sample_prompts_from_json(const Json& json);

}  // namespace flux2
