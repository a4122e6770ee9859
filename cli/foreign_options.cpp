#include "cli/options.h"

#include <cstdlib>

namespace flux2 {

namespace {

using Texts = std::vector<std::string>;

std::function<std::string(const Texts&)> always(std::string value) {
  return [value = std::move(value)](const Texts&) { return value; };
}

std::string size_from_height_and_width(const Texts& v) { return v.at(1) + "x" + v.at(0); }
// musubi-tuner's --save_path is a folder.
std::string folder_unless_image(const Texts& v) {
  const std::string& path = v.at(0);
  for (const char* extension : {".png", ".jpg", ".jpeg", ".webp", ".ppm", "/"})
    if (path.ends_with(extension)) return path;
  return path + "/";
}
std::string output_until(const Texts& v) { return v.at(0) == "latents" ? "latent" : v.at(0) == "image" ? "images" : v.at(0); }
std::string noise_of_generator(const Texts& v) { return "torch-" + v.at(0); }
std::string counted_from_one(const Texts& v) {
  return v.at(0).find_first_not_of("0123456789") == std::string::npos && v.at(0).size() < 6
             ? std::to_string(std::stoi("0" + v.at(0)) + 1)
             : v.at(0);
}

bool is_option(const std::string& word) { return word.starts_with('-'); }
bool is_number(const std::string& word) {
  char* end = nullptr;
  std::strtod(word.c_str(), &end);
  return !word.empty() && end == word.c_str() + word.size();
}
bool is_weights_file(const std::string& word) { return !is_option(word) && word.ends_with(".safetensors"); }
// A prompt has spaces, a pattern or the name of a file rarely.
bool is_pattern(const std::string& word) { return !is_option(word) && word.find(' ') == word.npos; }
bool is_image_file(const std::string& word) {
  for (const char* extension : {".png", ".jpg", ".jpeg", ".webp", ".bmp", ".PNG", ".JPG", ".JPEG", ".WEBP"})
    if (!is_option(word) && word.ends_with(extension)) return true;
  return false;
}

// Of lists whose values may be anything, such as key=value.
bool is_no_option(const std::string& word) { return !word.starts_with('-'); }

}  // namespace

const std::vector<ListOption>& list_options() {
  static const std::vector<ListOption> options = {{"lora-weight", is_weights_file},
                                                  {"lora-multiplier", is_number},
                                                  {"include-patterns", is_pattern},
                                                  {"exclude-patterns", is_pattern},
                                                  {"control-image-path", is_image_file},
                                                  {"input-images", is_image_file},
                                                  {"ip-adapter-image", is_image_file},
                                                  {"latent-path", is_weights_file},
                                                  {"network-args", is_no_option},
                                                  {"optimizer-args", is_no_option},
                                                  {"lr-scheduler-args", is_no_option},
                                                  {"base-weights", is_no_option},
                                                  {"freeze", is_no_option},
                                                  {"base-weights-multiplier", is_number}};
  return options;
}

// Names of stable-diffusion.cpp, musubi-tuner, diffusers, flux2.c and the original scripts; written with dashes, since the parser
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
      {"power-alpha", 1, "schedule", [](const Texts& v) { return "power:" + v.at(0); }},
      {"model-name", 1, "model"},
      {"model-version", 1, "model"},
      {"rng", 1, "noise", noise_of_generator},
      {"until", 1, "output-type", output_until},
      {"from-file", 1, "prompt-file"},
      {"vae-tiling", 0, "vae-tile", always("auto")},
      {"ref-image", 1, "input"},
      {"control-image-path", 1, "input"},
      {"input-images", 1, "input"},
      {"init-img", 1, "input"},
      {"ip-adapter-image", 1, "input"},  // Milimo's "IP-Adapter" images are references
      {"match-image-size", 1, "match", counted_from_one},
      {"upsample-prompt-mode", 1, "upsample"},
      {"fp8-scaled", 0, "quant", always("fp8")},
      {"type", 1, "quant"},
      {"fp8", 0, "quant", always("fp8")},
      {"fp8-text-encoder", 0, "quant-text-encoder", always("fp8")},
      {"no-resize-control", 0, "no-resize-ref", always("true")},
      {"flow-shift", 1, "shift"},
      {"num-inference-steps", 1, "steps"},
      {"num-images-per-prompt", 1, "batch"},
      {"cpu-offloading", 0, "offload", always("encoder")},
      {"offload-to-cpu", 0, "offload", always("stream")},
      {"clip-on-cpu", 0, "place", always("te=cpu")},
      {"vae-on-cpu", 0, "place", always("vae=cpu")},
      {"lora-weight", 1, "lora"},
      {"lora-multiplier", 1, "lora", {}, ForeignOption::Strength},
      {"include-patterns", 1, "lora", {}, ForeignOption::Include},
      {"exclude-patterns", 1, "lora", {}, ForeignOption::Exclude},
      {"attn-mode", 1, ""},
      {"lycoris", 0, ""},
      {"disable-numpy-memmap", 0, ""},
      {"use-pinned-memory-for-block-swap", 0, ""},
      {"diffusion-fa", 0, ""},
      {"fa", 0, ""},
      {"mmap", 0, ""},
      {"sdpa", 0, ""},
      {"single-eval", 0, ""},
  };
  return options;
}

}  // namespace flux2
