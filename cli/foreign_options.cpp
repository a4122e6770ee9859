#include "cli/options.h"

namespace flux2 {

namespace {

using Values = std::vector<std::string>;

std::function<std::string(const Values&)> always(std::string value) {
  return [value = std::move(value)](const Values&) { return value; };
}

std::string size_from_height_and_width(const Values& v) { return v.at(1) + "x" + v.at(0); }
// musubi-tuner's --save_path is a folder.
std::string folder_unless_image(const Values& v) {
  const std::string& path = v.at(0);
  for (const char* extension : {".png", ".jpg", ".jpeg", ".webp", ".ppm", "/"})
    if (path.ends_with(extension)) return path;
  return path + "/";
}
std::string noise_of_generator(const Values& v) { return "torch-" + v.at(0); }
std::string counted_from_one(const Values& v) {
  return v.at(0).find_first_not_of("0123456789") == std::string::npos && v.at(0).size() < 6
             ? std::to_string(std::stoi("0" + v.at(0)) + 1)
             : v.at(0);
}

}  // namespace

// Names of stable-diffusion.cpp, musubi-tuner, flux2.c and the original scripts; written with dashes, since the parser
// takes underscores for dashes.
const std::vector<ForeignOption>& foreign_options() {
  static const std::vector<ForeignOption> options = {
      {"num-steps", 1, "steps"},
      {"infer-steps", 1, "steps"},
      {"sampling-steps", 1, "steps"},
      {"embedded-cfg-scale", 1, "guidance"},
      {"guidance-scale", 1, "guidance"},
      {"negative-prompt", 1, "negative"},
      {"image-size", 2, "size", size_from_height_and_width},
      {"diffusion-model", 1, "dit"},
      {"llm", 1, "text-encoder"},
      {"save-path", 1, "output", folder_unless_image},
      {"batch-count", 1, "batch"},
      {"linear", 0, "schedule", always("linear")},
      {"power", 0, "schedule", always("power")},
      {"power-alpha", 1, "schedule", [](const Values& v) { return "power:" + v.at(0); }},
      {"model-name", 1, "model"},
      {"model-version", 1, "model"},
      {"rng", 1, "noise", noise_of_generator},
      {"from-file", 1, "prompt-file"},
      {"vae-tiling", 0, "vae-tile", always("auto")},
      {"ref-image", 1, "input"},
      {"control-image-path", 1, "input"},
      {"input-images", 1, "input"},
      {"init-img", 1, "input"},
      {"match-image-size", 1, "match", counted_from_one},
      {"upsample-prompt-mode", 1, "upsample"},
      {"fp8-scaled", 0, "quant", always("fp8")},
      {"type", 1, "quant"},
      {"blocks-to-swap", 1, "blocks-resident"},
      {"cpu-offloading", 0, "offload", always("encoder")},
      {"offload-to-cpu", 0, "offload", always("stream")},
      {"clip-on-cpu", 0, "place", always("te=cpu")},
      {"vae-on-cpu", 0, "place", always("vae=cpu")},
      {"lora-weight", 1, "lora"},
      {"diffusion-fa", 0, ""},
      {"fa", 0, ""},
      {"mmap", 0, ""},
      {"sdpa", 0, ""},
      {"single-eval", 0, ""},
  };
  return options;
}

}  // namespace flux2
