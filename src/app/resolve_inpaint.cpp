#include "app/resolve_inpaint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "app/mask_service.h"
#include "app/resolve_regions.h"
#include "base/error.h"
#include "image/mask_shapes.h"
#include "pipeline/inpaint.h"
#include "pipeline/picture_size.h"

namespace flux2 {

namespace {

InpaintOptions inpaint_options_of(const RequestSpec& spec, const Log& log) {
  InpaintOptions options;
  const bool diffusers = spec.inpaint_mode == "diffusers";
  options.mode = diffusers ? InpaintOptions::Mode::Diffusers : InpaintOptions::Mode::Ours;
  options.grow = static_cast<int>(spec.grow.value_or(options.grow));
  options.feather = static_cast<int>(spec.feather.value_or(options.feather));
  options.align = spec.align.value_or("on") == "on";
  const std::string crop = spec.crop.value_or("auto");
  if (crop == "off") options.crop = InpaintOptions::Crop::Off;
  else if (crop != "auto") {
    options.crop = InpaintOptions::Crop::On;
    options.padding = std::stoi(crop);
  }
  // A configured size or a preset applies to whole images. Here only a size in the request itself counts.
  const bool has_width = spec.is_asked("width"), has_height = spec.is_asked("height");
  check(has_width == has_height, "{}: inpainting needs the other side of the size too, or none",
        spec.origin(has_width ? "width" : "height"));
  if (!diffusers && has_width) {
    const PictureSize wanted{static_cast<int>(*spec.width), static_cast<int>(*spec.height)};
    const PictureSize size = valid_picture_size(wanted, spec.strict.value_or(false), log);
    options.width = size.width, options.height = size.height;
  }
  return options;
}

// The canvas and its mask, extended if the request says so.
struct Masked {
  std::shared_ptr<const Image> canvas;
  Image mask;
  PictureRecord mask_record;
  std::optional<PictureRecord> difference;  // the image of mask_from_diff
};

// A mask of another size is scaled, unless its aspect ratio differs from that of the image.
Image mask_for(const Image& canvas, const PictureRecord& name, const GivenPicture& given, const Log& log) {
  constexpr double kLargestStretch = 1.03;
  Image mask = mask_of_picture(*given.image);
  if (mask.width == canvas.width && mask.height == canvas.height) return mask;
  const double stretch = static_cast<double>(mask.width) * canvas.height / (static_cast<double>(mask.height) * canvas.width);
  check(stretch <= kLargestStretch && stretch >= 1 / kLargestStretch,
        "the mask {} is {}x{}, the image {} is {}x{}: they need the same aspect ratio", given.record.name, mask.width,
        mask.height, name.name, canvas.width, canvas.height);
  log.warn("the mask {} is {}x{} and is scaled to the size of the image, {}x{}", given.record.name, mask.width, mask.height,
           canvas.width, canvas.height);
  return scaled_mask(mask, canvas.width, canvas.height);
}

// What a mask service finds in the image.
void add_service_mask(Image& mask, const Image& canvas, const RequestSpec& spec) {
  const auto environment = [](const char* name) -> const char* { return std::getenv(name); };
  if (spec.mask_service == "off")
    throw Error(ErrorCode::InvalidArgument,
                fmt::format("{} needs a mask service, and {} is off", spec.origin(spec.mask_text ? "mask_text" : "mask_points"),
                            spec.origin("mask_service")),
                Hint("name its address with {0}", {set_option("mask_service", "URL")}));
  const MaskService service(spec.mask_service.value_or(kMaskService), http_settings(environment));
  const auto add = [&](const Image& found) {
    for (size_t i = 0; i < mask.pixels.size(); ++i) mask.pixels[i] = std::max(mask.pixels[i], found.pixels[i]);
  };
  if (spec.mask_text)
    in_context(spec.origin("mask_text"),
               [&] { add(service.by_text(canvas, *spec.mask_text, spec.mask_confidence.value_or(kMaskConfidence))); });
  if (spec.mask_points)
    in_context(spec.origin("mask_points"), [&] {
      std::vector<MaskPoint> points;
      for (const std::string& text : *spec.mask_points) points.push_back(parse_mask_point(text));
      add(service.by_points(canvas, points, std::nullopt, false).front().mask);
    });
}

// What the request selects in the image by shapes, colours and differences.
void add_selections(Image& mask, const Image& canvas, const RequestSpec& spec, InputImages& images) {
  const auto each = [&](const char* field, const RequestSpec::Texts& texts, const auto& add) {
    for (const std::string& text : texts.value_or(std::vector<std::string>{})) in_context(spec.origin(field), [&] { add(text); });
  };
  each("mask_box", spec.mask_box, [&](const std::string& text) { add_box(mask, parse_box(text)); });
  each("mask_ellipse", spec.mask_ellipse, [&](const std::string& text) { add_ellipse(mask, parse_box(text)); });
  each("mask_polygon", spec.mask_polygon, [&](const std::string& text) { add_polygon(mask, parse_polygon(text)); });
  each("mask_wand", spec.mask_wand, [&](const std::string& text) { add_wand(mask, canvas, parse_wand(text)); });
  each("mask_color", spec.mask_color, [&](const std::string& text) { add_colour(mask, canvas, parse_colour_choice(text)); });
  if (spec.mask_text || spec.mask_points) add_service_mask(mask, canvas, spec);
  if (spec.mask_from_diff)
    in_context(spec.origin("mask_from_diff"), [&] { add_difference(mask, canvas, *images.picture(*spec.mask_from_diff).image); });
}

// Whether the request itself says which area it means.
bool selects_area(const RequestSpec& spec) {
  return spec.mask || spec.mask_box || spec.mask_ellipse || spec.mask_polygon || spec.mask_wand || spec.mask_color ||
         spec.mask_from_diff || spec.mask_text || spec.mask_points;
}

Masked read_masked(const RequestSpec& spec, const GivenPicture& given, InputImages& images, const Log& log) {
  const bool transparent = !selects_area(spec) && has_transparency(*given.image);
  if (!selects_area(spec) && !spec.extend && !transparent)
    throw Error(ErrorCode::InvalidArgument, "it is not clear which part of the image is meant",
                Hint("use {0}, {1}, {2}, {3}, or an image with transparent areas",
                     {set_option("mask", "FILE"), set_option("mask_box", "x,y,w,h"), set_option("mask_wand", "x,y"),
                      set_option("extend", "l,t,r,b")}));
  Masked masked;
  const Image& canvas = *given.image;
  masked.mask = Image(canvas.width, canvas.height, 1);
  if (spec.mask) {
    const GivenPicture mask = images.mask(*spec.mask);
    masked.mask = mask_for(canvas, given.record, mask, log);
    masked.mask_record = mask.record;
  } else if (transparent) {
    masked.mask = mask_of_picture(canvas);
  }
  add_selections(masked.mask, canvas, spec, images);
  if (spec.mask_from_diff) masked.difference = images.picture(*spec.mask_from_diff).record;
  if (spec.mask_invert.value_or(false)) invert(masked.mask);

  // If transparency is the mask, the canvas becomes opaque; otherwise transparency is kept.
  const bool as_it_is = canvas.channels == 3 || (canvas.channels == 4 && !transparent);
  masked.canvas = as_it_is ? given.image : std::make_shared<const Image>(to_rgb(canvas));
  if (spec.extend) {
    Image larger = *masked.canvas;
    in_context(spec.origin("extend"), [&] { extend(larger, masked.mask, parse_margins(*spec.extend)); });
    masked.canvas = std::make_shared<const Image>(std::move(larger));
  }
  return masked;
}

// The spec for resolve_generate(): the references after the canvas, the size of the region, no starting image.
RequestSpec without_canvas(RequestSpec spec, const Inpaint& inpaint) {
  spec.input->erase(spec.input->begin());
  spec.width = inpaint.width(), spec.height = inpaint.height();
  spec.defaults.erase("width"), spec.defaults.erase("height");
  spec.match = "off";
  spec.strength = 1.0;
  spec.watermark.reset();  // the whole image gets it, not the region
  remove_regions(spec);    // they are about the whole image
  spec.hires.reset();      // a configured one is about whole images
  return spec;
}

// A watermark changes every part of an image, and inpainting promises that the kept part does not change.
WatermarkBits watermark_of_whole(const RequestSpec& spec, const Image& canvas, const Log& log) {
  WatermarkBits bits = chosen_watermark(spec, canvas.width, canvas.height, log);
  if (!bits.empty() && !spec.watermark_kept.value_or(false))
    throw Error(ErrorCode::InvalidArgument,
                spec.origin("watermark") + ": a watermark would change the part of the image that inpainting keeps",
                Hint("allow that with {0}, or leave the watermark out with {1}",
                     {set_option("watermark_kept"), set_option("watermark", "off")}));
  return bits;
}

void refuse_extra_passes(const RequestSpec& spec) {
  for (const auto& [field, given] :
       {std::pair{"hires", spec.hires.value_or(1) != 1}, std::pair{"detail_mask", spec.detail_mask.has_value()},
        std::pair{"detail_box", spec.detail_box.has_value()}})
    check(!given || !spec.is_asked(field), "{}: inpainting has no second pass; inpaint the image again instead",
          spec.origin(field));
}

// Edges of the image meet, those of a region inside it do not.
void keep_edges_of_region(const RequestSpec& spec, const Image& canvas, const Box& region, ResolvedRequest& resolved,
                          const Log& log) {
  Request& request = resolved.request;
  const bool across = request.tile_x && region.width < canvas.width, down = request.tile_y && region.height < canvas.height;
  if (!across && !down) return;
  if (spec.is_asked("tile"))
    log.warn("{} {} has no effect{}, because only a region of the image is generated", spec.origin("tile"), *spec.tile,
             across && down ? ""
             : across       ? " on the left and right edge"
                            : " on the top and bottom edge");
  request.tile_x = request.tile_x && !across, request.tile_y = request.tile_y && !down;
  if (!request.tile_x && !request.tile_y) resolved.record.request.tile.reset();
}

}  // namespace

CanvasMask mask_of_request(const RequestSpec& spec, const Log& log, InputImages& images) {
  check(spec.input && spec.input->size() == 1, "a mask is about one image");
  Masked masked = read_masked(spec, images.picture(spec.input->front()), images, log);
  return {.canvas = std::move(masked.canvas), .mask = std::move(masked.mask)};
}

ResolvedRequest resolve_inpaint(const RequestSpec& spec, const ModelFiles& model, const Log& log, InputImages& images) {
  if (!spec.input || spec.input->empty())
    throw Error(ErrorCode::InvalidArgument, "inpainting needs an image", Hint("name one with {0}", {set_option("input")}));
  check(spec.output_type.value_or("images") == "images",
        "{}: the latents of an inpainted image are those of the region that was worked on, so only images can be written",
        spec.origin("output_type"));
  const auto is_on_standard_input = [](const std::string& path) { return path == "-"; };
  check(spec.mask != "-" || std::none_of(spec.input->begin(), spec.input->end(), is_on_standard_input),
        "standard input holds one image, which cannot be the image and its mask");
  refuse_extra_passes(spec);
  check(spec.match.value_or("off") == "off" || !spec.is_asked("match"),
        "{} {}: an inpainted image has the size of the image that is changed, not that of a reference", spec.origin("match"),
        spec.match.value_or(""));
  const GivenPicture given = images.picture(spec.input->front());
  Masked masked = read_masked(spec, given, images, log);
  const WatermarkBits watermark = watermark_of_whole(spec, *masked.canvas, log);
  const InpaintOptions options = inpaint_options_of(spec, log);
  const auto inpaint = std::make_shared<const Inpaint>(masked.canvas, std::move(masked.mask), options);
  if (options.mode == InpaintOptions::Mode::Diffusers && spec.is_asked("width") &&
      (spec.width != inpaint->width() || spec.height != inpaint->height()))
    log.warn("{} is ignored: {} diffusers works at the size of the image, {}x{}", spec.origin("width"),
             spec.origin("inpaint_mode"), inpaint->width(), inpaint->height());

  ResolvedRequest resolved = resolve_generate(without_canvas(spec, *inpaint), model, log, images);
  resolved.spec = spec;
  Request& request = resolved.request;
  GenerationRecord& record = resolved.record;
  const double strength = spec.strength.value_or(1.0);
  request.canvas = inpaint->canvas(strength);
  const bool is_reference = spec.context.value_or("refs") == "refs";
  // resolve_generate() knows the other references of the whole image only.
  if (request.references.empty() && (is_reference || has_region_references(spec)))
    request.reuse_reference_keys = reuses_reference_keys(spec, model, log);
  if (is_reference) {
    request.references.insert(request.references.begin(), request.canvas->picture);
    record.request.ref_kv = request.reuse_reference_keys ? "on" : "off";
  }
  keep_edges_of_region(spec, *masked.canvas, inpaint->region(), resolved, log);
  RequestSpec about_regions = spec;
  about_regions.input->erase(about_regions.input->begin());
  resolve_regions(about_regions, {masked.canvas->width, masked.canvas->height}, images, log, resolved,
                  [&](const Image& mask) { return crop_extended(mask, inpaint->region()); });

  record.kind = "inpaint";
  record.canvas = given.record;
  record.mask_name = masked.mask_record.name;
  record.mask_sha256 = masked.mask_record.sha256;
  record.mask_difference = masked.difference;
  record.work_width = options.width, record.work_height = options.height;
  RequestSpec& used = record.request;
  if (strength < 1.0) used.strength = strength;
  used.mask_box = spec.mask_box, used.mask_ellipse = spec.mask_ellipse, used.mask_polygon = spec.mask_polygon;
  used.mask_wand = spec.mask_wand, used.mask_color = spec.mask_color;
  used.mask_text = spec.mask_text, used.mask_points = spec.mask_points;
  if (spec.mask_text) used.mask_confidence = spec.mask_confidence;
  if (spec.mask_invert.value_or(false)) used.mask_invert = true;
  used.extend = spec.extend;
  used.grow = options.grow, used.feather = options.feather;
  if (!options.align) used.align = "off";
  if (spec.crop && *spec.crop != "auto") used.crop = spec.crop;
  if (spec.inpaint_mode && *spec.inpaint_mode != "ours") used.inpaint_mode = spec.inpaint_mode;
  if (options.mode == InpaintOptions::Mode::Ours) used.width = masked.canvas->width, used.height = masked.canvas->height;
  if (!watermark.empty()) used.watermark = spec.watermark, used.watermark_kept = true;
  resolved.finish = [inpaint, watermark](const Image& made) {
    Image finished = inpaint->finish(made);
    return watermark.empty() ? finished : with_watermark(finished, watermark);
  };
  return resolved;
}

}  // namespace flux2
