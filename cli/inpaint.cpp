#include "cli/inpaint.h"

#include "cli/command.h"
#include "cli/prepare.h"
#include "pipeline/picture_size.h"
#include "pipeline/inpaint.h"

namespace flux2 {

namespace {

constexpr int kWidestEdge = 256;  // pixels of --grow and --feather

InpaintOptions inpaint_options_of(const Settings& settings, const Log& log) {
  InpaintOptions options;
  const bool diffusers = settings.choice("inpaint-mode", {"ours", "diffusers"}, "ours") == "diffusers";
  options.mode = diffusers ? InpaintOptions::Mode::Diffusers : InpaintOptions::Mode::Ours;
  options.grow = static_cast<int>(settings.integer("grow", 0, kWidestEdge).value_or(options.grow));
  options.feather = static_cast<int>(settings.integer("feather", 0, kWidestEdge).value_or(options.feather));
  options.align = settings.choice("align", {"on", "off"}, "on") == "on";
  const std::string crop = settings.text("crop", "auto");
  if (crop == "off") options.crop = InpaintOptions::Crop::Off;
  else if (crop != "auto") {
    options.crop = InpaintOptions::Crop::On;
    options.padding = static_cast<int>(*settings.integer("crop", 0, 4096));
  }
  // A size in a configuration file is about whole pictures; here it has to be asked for.
  const Setting *width = settings.find("width"), *height = settings.find("height");
  if (!diffusers && width && height && width->origin.starts_with("--") && !width->origin.starts_with("--preset")) {
    const PictureSize wanted{static_cast<int>(*settings.integer("width", 1, 1 << 20)),
                             static_cast<int>(*settings.integer("height", 1, 1 << 20))};
    const PictureSize size = valid_picture_size(wanted, settings.flag("strict"), log);
    options.width = size.width, options.height = size.height;
  }
  return options;
}

// The canvas and its mask, extended where that is asked for, and what the record says about the mask.
struct Masked {
  std::shared_ptr<const Image> canvas;
  Image mask;
  MaskRecord record;
};

Masked read_masked(const Settings& settings, const GivenPicture& given, PictureShelf& shelf) {
  const Setting *file = settings.find("mask"), *boxes = settings.find("mask-box"), *margins = settings.find("extend");
  const bool transparent = !file && !boxes && has_transparency(*given.image);
  if (!file && !boxes && !margins && !transparent)
    throw Error(ErrorCode::InvalidArgument, "inpaint does not know what to make anew",
                "say it with --mask FILE, --mask-box x,y,w,h, --extend l,t,r,b, or transparency in the picture");
  Masked masked;
  const Image& canvas = *given.image;
  masked.mask = Image(canvas.width, canvas.height, 1);
  if (file) {
    const GivenPicture mask = shelf.mask(file->values.back());
    check(mask.image->width == canvas.width && mask.image->height == canvas.height,
          "the mask {} is {}x{}, the picture {} is {}x{}: they need the same size", mask.record.name, mask.image->width,
          mask.image->height, given.record.name, canvas.width, canvas.height);
    masked.mask = mask_of_picture(*mask.image);
    masked.record.sha256 = mask.record.sha256;
  } else if (transparent) {
    masked.mask = mask_of_picture(canvas);
  }
  if (boxes)
    for (const std::string& box : boxes->values) {
      in_context(boxes->origin, [&] { add_box(masked.mask, parse_box(box)); });
      masked.record.boxes.push_back(box);
    }
  if (settings.flag("mask-invert")) invert(masked.mask), masked.record.inverted = true;

  // Transparency that is the mask is painted over; other transparency stays.
  const bool as_it_is = canvas.channels == 3 || (canvas.channels == 4 && !transparent);
  masked.canvas = as_it_is ? given.image : std::make_shared<const Image>(to_rgb(canvas));
  if (margins) {
    Image larger = *masked.canvas;
    in_context(margins->origin, [&] { extend(larger, masked.mask, parse_margins(margins->values.back())); });
    masked.canvas = std::make_shared<const Image>(std::move(larger));
    masked.record.extended = margins->values.back();
  }
  return masked;
}

// What resolve_request is to see: the references behind the canvas, the size to work at, nothing to begin with.
Settings without_canvas(const Settings& settings, const Inpaint& inpaint) {
  Setting others = *settings.find("input");
  others.values.erase(others.values.begin());
  const auto fixed = [](std::string value) { return Setting{{std::move(value)}, "inpaint"}; };
  return settings.with({{"input", std::move(others)},
                        {"width", fixed(std::to_string(inpaint.width()))},
                        {"height", fixed(std::to_string(inpaint.height()))},
                        {"match", fixed("off")},
                        {"strength", fixed("1")}});
}

}  // namespace

ResolvedRequest resolve_inpaint(const Settings& settings, const ModelFiles& model, const std::string& prompt, const Log& log,
                                PictureShelf* shelf) {
  const Setting* input = settings.find("input");
  if (!input)
    throw Error(ErrorCode::InvalidArgument, "inpaint needs a picture",
                "flux2 inpaint -i photo.png --mask mask.png \"a red door\"");
  const GivenPicture given = shelf->picture(input->values.front());
  Masked masked = read_masked(settings, given, *shelf);
  const auto inpaint = std::make_shared<const Inpaint>(masked.canvas, std::move(masked.mask), inpaint_options_of(settings, log));

  ResolvedRequest resolved = resolve_request(without_canvas(settings, *inpaint), model, prompt, log, shelf);
  Request& request = resolved.request;
  GenerationRecord& record = resolved.record;
  record.strength = settings.number("strength", 0, 1).value_or(1.0);
  request.canvas = inpaint->canvas(record.strength);
  if (record.context) request.references.insert(request.references.begin(), request.canvas->picture);

  const InpaintOptions options = inpaint_options_of(settings, {});
  record.kind = "inpaint";
  record.canvas = given.record;
  masked.record.grow = options.grow, masked.record.feather = options.feather;
  masked.record.aligned = options.align;
  masked.record.mode = settings.text("inpaint-mode", "ours");
  record.mask = masked.record;
  if (options.mode == InpaintOptions::Mode::Ours) record.width = masked.canvas->width, record.height = masked.canvas->height;
  resolved.finish = [inpaint](const Image& made) { return inpaint->finish(made); };
  return resolved;
}

int run_inpaint(Invocation& run) { return run_prepared(run, prepare_run(run, nullptr, resolve_inpaint)); }

}  // namespace flux2
