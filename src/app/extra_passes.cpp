#include "app/extra_passes.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "image/mask.h"
#include "image/resize.h"
#include "pipeline/inpaint.h"
#include "pipeline/latents.h"
#include "pipeline/picture_size.h"
#include "pipeline/regions.h"

namespace flux2 {

namespace {

constexpr double kHiresStrength = 0.3, kDetailStrength = 0.4;
constexpr double kDetailScale = 4;  // a part is enlarged at most this much

PictureSize scaled_size(int width, int height, double scale, const RequestSpec& spec) {
  const auto side = [&](int s) { return static_cast<int>(std::lround(s * scale / 16)) * 16; };
  return in_context(spec.origin("hires"), [&] { return valid_picture_size({side(width), side(height)}, false, Log{}); });
}

void require_hires(const RequestSpec& spec) {
  for (const auto& [field, given] :
       {std::pair{"hires_strength", spec.hires_strength.has_value()}, std::pair{"hires_method", spec.hires_method.has_value()}})
    if (given && spec.is_asked(field))
      throw Error(ErrorCode::InvalidArgument, spec.origin(field) + ": there is no second pass",
                  Hint("ask for one with {0}", {set_option("hires", "2")}));
}

// The mask of the detail pass at the size of the final image.
std::shared_ptr<const Image> detail_mask_of(const RequestSpec& spec, const PictureSize& size, const Log& log, InputImages& images,
                                            PictureRecord& record) {
  auto mask = std::make_shared<Image>(size.width, size.height, 1);
  if (spec.detail_mask) {
    const GivenPicture given = images.mask(*spec.detail_mask);
    *mask = mask_of_picture(*given.image);
    record = given.record;
    if (mask->width != size.width || mask->height != size.height) {
      log.warn("the mask {} is {}x{} and is scaled to the size of the image, {}x{}", given.record.name, mask->width, mask->height,
               size.width, size.height);
      *mask = scaled_mask(*mask, size.width, size.height);
    }
  }
  for (const std::string& text : spec.detail_box.value_or(std::vector<std::string>{}))
    in_context(spec.origin("detail_box"), [&] { add_box(*mask, parse_box(text)); });
  check(bounds(*mask).has_value(), "{}: the mask is empty, so there is nothing to redraw",
        spec.origin(spec.detail_mask ? "detail_mask" : "detail_box"));
  return mask;
}

// Runs one request for one image.
Picture run_pass(Session& session, const Request& request, const Progress& progress, PhaseTimes& times) {
  Picture made;
  const PhaseTimes spent = text_to_image(session, request, progress, [&](Picture picture) { made = std::move(picture); });
  times.load += spent.load, times.text += spent.text, times.references += spent.references;
  times.denoise += spent.denoise, times.decode += spent.decode;
  return made;
}

// The request of a later pass for the image `picture`.
Request pass_for(const Request& request, const Picture& picture, int width, int height) {
  Request pass = request;
  pass.width = width, pass.height = height;
  pass.seed = picture.seed, pass.variation = picture.variation;
  pass.batch = 1;
  return pass;
}

Picture hires_pass(Session& session, const Request& request, const HiresPass& hires, const Picture& picture,
                   const Progress& progress, PhaseTimes& times) {
  Request pass = pass_for(request, picture, hires.width, hires.height);
  Canvas canvas{.picture = nullptr, .strength = hires.strength};
  if (hires.enlarges_latents)
    canvas.latents =
        enlarged_latents(*session.models.vae, picture.latents, picture.rows, picture.columns, pass.rows(), pass.columns());
  else canvas.picture = planes_of(resize(picture.decoded.rgb8(Rounding::Nearest), hires.width, hires.height));
  pass.canvas = std::move(canvas);
  return run_pass(session, pass, progress, times);
}

// The part is worked on with as many pixels as the whole image has, unless that enlarges it too much.
InpaintOptions detail_options(const std::shared_ptr<const Image>& canvas, const DetailPass& detail) {
  InpaintOptions options;
  options.crop = InpaintOptions::Crop::On;
  const Inpaint plain(canvas, *detail.mask, options);
  const double whole = static_cast<double>(canvas->width) * canvas->height;
  const double scale = std::min(std::sqrt(whole / (static_cast<double>(plain.width()) * plain.height())), kDetailScale);
  if (scale > 1) {
    const auto side = [&](int s) { return std::max(16, static_cast<int>(std::lround(s * scale / 16)) * 16); };
    options.width = side(plain.width()), options.height = side(plain.height());
  }
  return options;
}

// Makes a request of the image's size one for the part that the detail pass changes.
void work_on_detail(Request& pass, const DetailPass& detail, const Inpaint& inpaint) {
  pass.width = inpaint.width(), pass.height = inpaint.height();
  pass.canvas = inpaint.canvas(detail.strength);
  pass.tile_x = pass.tile_y = false;  // a part of an image has no opposite edge
  cut_regions(pass, detail.mask->width, detail.mask->height, inpaint.region());
}

Picture detail_pass(Session& session, const Request& request, const DetailPass& detail, Picture picture, const Progress& progress,
                    PhaseTimes& times) {
  const auto canvas = std::make_shared<const Image>(picture.decoded.rgb8(Rounding::Nearest));
  const Inpaint inpaint(canvas, *detail.mask, detail_options(canvas, detail));
  Request pass = pass_for(request, picture, canvas->width, canvas->height);
  work_on_detail(pass, detail, inpaint);
  const Picture part = run_pass(session, pass, progress, times);
  const Image finished = inpaint.finish(part.decoded.rgb8(Rounding::Nearest));
  picture.decoded = DecodedPicture(Planes(*planes_of(finished)));
  return picture;
}

}  // namespace

ChosenPasses choose_passes(const RequestSpec& spec, int width, int height, const Log& log, InputImages& images,
                           RequestSpec& used) {
  ChosenPasses chosen;
  const bool has_detail = spec.detail_mask || spec.detail_box;
  const double scale = spec.hires.value_or(1);
  if (scale == 1) require_hires(spec);
  if (spec.detail_strength && spec.is_asked("detail_strength") && !has_detail)
    throw Error(ErrorCode::InvalidArgument, spec.origin("detail_strength") + ": no part of the image is selected",
                Hint("select one with {0} or {1}", {set_option("detail_mask", "FILE"), set_option("detail_box", "x,y,w,h")}));
  PictureSize size{width, height};
  if (scale > 1) {
    check(!spec.noise_file, "{}: the noise comes from a file, which has the size of the first pass only", spec.origin("hires"));
    size = scaled_size(width, height, scale, spec);
    HiresPass pass{.width = size.width, .height = size.height};
    pass.strength = spec.hires_strength.value_or(kHiresStrength);
    pass.enlarges_latents = spec.hires_method == "latents";
    used.hires = scale, used.hires_strength = pass.strength;
    if (pass.enlarges_latents) used.hires_method = "latents";
    chosen.passes.hires = pass;
  }
  if (has_detail) {
    const std::string origin = spec.origin(spec.detail_mask ? "detail_mask" : "detail_box");
    check(!spec.noise_file, "{}: the noise comes from a file, which has the size of the whole image only", origin);
    check(spec.output_type.value_or("images") == "images", "{}: the latents do not contain what the detail pass changes", origin);
    DetailPass pass;
    pass.mask = detail_mask_of(spec, size, log, images, chosen.mask);
    pass.strength = spec.detail_strength.value_or(kDetailStrength);
    used.detail_box = spec.detail_box, used.detail_strength = pass.strength;
    chosen.passes.detail = std::move(pass);
  }
  return chosen;
}

Request first_pass(Request request, const ExtraPasses& passes) {
  if (!passes.any()) return request;
  request.watermark.clear();
  request.decode = !(passes.hires && passes.hires->enlarges_latents);
  return request;
}

Request largest_pass(const Request& request, const ExtraPasses& passes) {
  if (!passes.hires) return request;
  Request pass = request;
  pass.width = passes.hires->width, pass.height = passes.hires->height;
  pass.batch = 1;
  const size_t samples = size_t{3} * static_cast<size_t>(pass.width) * static_cast<size_t>(pass.height);
  pass.canvas = Canvas{std::make_shared<const Planes>(Planes{pass.width, pass.height, std::vector<float>(samples)}),
                       passes.hires->strength};
  return pass;
}

std::vector<Request> later_passes(const Request& request, const ExtraPasses& passes) {
  std::vector<Request> later;
  if (passes.hires) later.push_back(largest_pass(request, passes));
  if (passes.detail) {
    const auto canvas = std::make_shared<const Image>(passes.detail->mask->width, passes.detail->mask->height, 3);
    Request& pass = later.emplace_back(request);
    pass.batch = 1;
    work_on_detail(pass, *passes.detail, Inpaint(canvas, *passes.detail->mask, detail_options(canvas, *passes.detail)));
  }
  return later;
}

Forecast forecast_of_all_passes(const Engine& engine, const ModelFiles& model, const Request& request,
                                const ExtraPasses& passes) {
  Forecast total = forecast(engine, model, largest_pass(request, passes));
  if (passes.hires) {  // so far that is the hires pass of one image
    total.add(Forecast(total), request.batch - 1);
    total.add(forecast(engine, model, request), 1);
  }
  if (passes.detail) total.add(forecast(engine, model, later_passes(request, passes).back()), request.batch);
  return total;
}

Picture with_extra_passes(Session& session, const Request& request, const ExtraPasses& passes, Picture picture,
                          const Progress& progress, PhaseTimes& times) {
  const int index = picture.index;
  Request plain = request;
  if (passes.detail) plain.watermark.clear();  // the whole image gets it afterwards
  if (passes.hires) picture = hires_pass(session, plain, *passes.hires, picture, progress, times);
  if (passes.detail) {
    picture = detail_pass(session, plain, *passes.detail, std::move(picture), progress, times);
    if (!request.watermark.empty()) picture.decoded = watermarked(picture.decoded, request.watermark, session.log);
  }
  picture.index = index;
  return picture;
}

}  // namespace flux2
