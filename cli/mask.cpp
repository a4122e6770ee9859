#include <fmt/format.h>

#include <algorithm>

#include "app/input_images.h"
#include "app/resolve_inpaint.h"
#include "cli/command.h"
#include "cli/show.h"
#include "cli/user_input.h"
#include "image/mask_shapes.h"
#include "image/write_image.h"

namespace flux2 {

namespace {

void write_picture(const std::string& path, const Image& image) {
  save_image(path, encode_image(image, format_from_name(path), {}, {}));
}

}  // namespace

int run_mask(Invocation& run) {
  RequestSpec spec = run.spec();
  if (!run.positional.empty()) spec.input = run.positional;
  if (!spec.input || spec.input->size() != 1)
    throw Error(ErrorCode::InvalidArgument,
                spec.input ? fmt::format("mask takes one image, not {}", spec.input->size()) : "mask needs an image",
                Hint("{0} shows examples", {run_command("mask --help")}));
  const std::string output = run.settings.text("output"), overlay = run.settings.text("overlay");
  const bool shows = run.settings.has("show");
  check_show_options(run.settings);
  check(!output.empty() || !overlay.empty() || shows, "mask needs -o FILE, --overlay FILE or --show");
  for (const std::string& path : {output, overlay}) {
    check(path != "-", "a mask cannot be written to standard output");
    if (!path.empty()) format_from_name(path);  // before anything is computed
  }

  const auto standard_input = [bytes = run.limits.image.file_bytes] { return read_standard_input(bytes); };
  InputImages images(run.console.log(), standard_input, run.limits);
  CanvasMask selected = mask_of_request(spec, run.console.log(), images);
  selected.mask =
      feathered(grown(selected.mask, static_cast<int>(spec.grow.value_or(0))), static_cast<int>(spec.feather.value_or(0)));
  const auto area = bounds(selected.mask);
  check(area.has_value(), "the mask is empty: nothing is selected");
  const auto count = std::count_if(selected.mask.pixels.begin(), selected.mask.pixels.end(), [](uint8_t m) { return m >= 128; });
  const double share = 100.0 * static_cast<double>(count) / static_cast<double>(selected.mask.pixels.size());

  const Image over = with_overlay(*selected.canvas, selected.mask);
  if (!output.empty()) write_picture(output, selected.mask);
  if (!overlay.empty()) write_picture(overlay, over);
  if (shows) show_picture(over, run);
  if (run.console.json()) {
    const auto path_or_null = [](const std::string& path) { return path.empty() ? Json() : Json(path); };
    run.console.result(Json{{"path", path_or_null(output)},
                            {"overlay", path_or_null(overlay)},
                            {"width", selected.mask.width},
                            {"height", selected.mask.height},
                            {"box", {area->x, area->y, area->width, area->height}},
                            {"share", share / 100},
                            {"warnings", run.console.warnings()}}
                           .dump(-1, ' ', false, Json::error_handler_t::replace));
    return 0;
  }
  run.console.note(fmt::format("{:.1f} % of the image, inside the box X,Y,W,H = {},{},{},{}", share, area->x, area->y,
                               area->width, area->height));
  for (const std::string& path : {output, overlay})
    if (!path.empty()) run.console.result_path(path);
  return 0;
}

}  // namespace flux2
