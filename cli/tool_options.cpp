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

// Takes these options as before, so that "generate" can be replaced with another command, but does not list them.
void hide(std::vector<OptionGroup>& groups, const std::vector<std::string>& names) {
  for (OptionGroup& group : groups)
    for (OptionSpec& option : group.options)
      if (std::find(names.begin(), names.end(), option.name) != names.end()) option.help.clear();
}

}  // namespace

std::vector<OptionGroup> plan_options() {
  std::vector<OptionGroup> groups = generate_options();
  hide(groups, {"output",      "format", "quality", "rounding",    "metadata",          "private",   "no-provenance",
                "sidecar",     "show",   "zoom",    "show-steps",  "preview-file",      "preview",   "watermark",
                "latents-out", "trace",  "dry-run", "save-merged", "save-merged-model", "moderation"});
  return groups;
}

std::vector<OptionGroup> grid_options() {
  const OptionGroup axes = {
      "Axes",
      {{"x", 0, "OPTION=VALUES", "columns: steps=4,8 or seed=1..3 or cfg=1..4:0.5 or \"prompt=a fox|a cat\""},
       {"y", 0, "OPTION=VALUES", "rows"},
       {"z", 0, "OPTION=VALUES", "one table below the other"},
       {"cell", 0, "PX", "longest side of an image on the sheet (default: full size)"},
       {"sheet-only", 0, "", "do not write the single images"}}};
  auto groups =
      with_first(axes, without(generate_options(), {"prompt-file", "batch", "repeat", "latents-out", "output-type", "latent-path",
                                                    "save-merged", "save-merged-model", "trace", "dry-run"}));
  // -y would be the same name as --y to newer versions of the parser.
  for (OptionGroup& group : groups)
    for (OptionSpec& o : group.options)
      if (o.letter == 'y') o.letter = 0;
  set_common(groups, {"x",     "y",     "z",        "cell",   "sheet-only", "prompt", "negative", "input", "size", "seed",
                      "model", "steps", "guidance", "output", "device",     "quant",  "verbose",  "json",  "help", "help-all"});
  return groups;
}

std::vector<OptionGroup> shell_options() {
  return without(generate_options(), {"prompt-file", "repeat", "from", "remix", "latents-out", "output-type", "latent-path",
                                      "save-merged", "save-merged-model", "trace", "dry-run", "json"});
}

// Without what only the program that computes an image can do.
std::vector<OptionGroup> without_local_options(std::vector<OptionGroup> groups) {
  return without(std::move(groups),
                 {"repeat", "from", "remix", "save-merged", "save-merged-model", "sidecar", "show", "zoom", "show-steps",
                  "preview-file", "preview", "latents-out", "output-type", "latent-path", "trace", "dry-run"});
}

std::vector<OptionGroup> verify_options() {
  const OptionGroup own = {
      "Comparison",
      {{"tolerance", 0, "N", "largest difference of a pixel that passes, 0 to 255 (default: 0)"},
       option("input", 'i', "the references of an edit, in their order (default: those next to the image)"),
       option("lora", 0, "the adapters that the image was made with (default: those next to it or installed)"),
       option("detail_mask", 0, "the mask of the detail pass (default: the file next to the image)"),
       option("rounding")}};
  return with_first(own, groups_of_generate({"Model", "Device and memory", "Messages"}));
}

std::vector<OptionGroup> upscale_options() {
  const OptionGroup own = {
      "Enlarging",
      {option("input", 'i', "an image to enlarge, like the arguments; may be repeated"),
       {"scale", 0, "X", "1 to 8 (default: 2; esrgan: the scale of the network)"},
       {.name = "method",
        .value = "NAME",
        .help = "lanczos; esrgan: a network (RRDBNet); or redraw: regenerate it with the image as reference (default: lanczos)",
        .words = {"lanczos", "esrgan", "redraw"}},
       {"upscaler", 0, "NAME|FILE", "esrgan, redraw: the network (default: an installed one that fits the scale)"},
       {"tile-size", 0, "PX",
        "esrgan: side of the tiles that it works in (default: 512; on a GPU 1024); redraw: regenerate tiles of this size and "
        "blend them (default: the whole image at once)"},
       option("trace", 0, "esrgan: a safetensors file with the enlarged image before it is rounded"),
       option("prompt", 'p', "redraw: what the image shows (default: its own prompt)"),
       option("strength", 0, "redraw: below 1 it starts from the enlarged image with noise added (default: 1; in tiles 0.3)"),
       option("lora", 0, "redraw: adapter with its strength"),
       option("align", 0, "redraw: correct shift, scale and colours to match the original (default: on)"),
       option("seed", 'S', "redraw: 0 to 2^63-1 or random (default: random)"),
       option("negative", 'n', "redraw: what to avoid")}};
  auto groups = with_first(own, groups_of_generate({"Sampling", "Output", "Model", "Device and memory", "Messages"}));
  set_common(groups, {"scale", "method", "upscaler", "tile-size", "prompt", "strength", "seed", "lora", "steps", "output",
                      "format", "show", "model", "device", "quant", "verbose", "json", "help", "help-all"});
  return groups;
}

}  // namespace flux2
