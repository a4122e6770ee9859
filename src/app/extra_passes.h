#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "app/input_images.h"
#include "engine/forecast.h"
#include "pipeline/text_to_image.h"
#include "record/request_spec.h"

namespace flux2 {

// What is done to a generated image before it is delivered. Each pass generates again, with the same prompt, seed, adapters and
// references, starting from the image of the pass before.

// The whole image at a larger size.
struct HiresPass {
  int width = 0, height = 0;  // multiples of 16
  double strength = 0.3;      // how much is generated again
  bool enlarges_latents = false;
};

// One part of the image, worked on at up to four times its size, as inpainting does it.
struct DetailPass {
  std::shared_ptr<const Image> mask;  // of the final image's size; 255 is regenerated
  double strength = 0.4;
};

struct ExtraPasses {
  std::optional<HiresPass> hires;
  std::optional<DetailPass> detail;

  bool any() const { return hires || detail; }
};

// The passes that a request asks for, whose first pass makes width × height pixels. Notes them in `used`, the settings of the
// record. Throws InvalidArgument if something else in the request rules them out.
struct ChosenPasses {
  ExtraPasses passes;
  PictureRecord mask;  // of the detail pass, if it is a file
};
ChosenPasses choose_passes(const RequestSpec& spec, int width, int height, const Log& log, InputImages& images,
                           RequestSpec& used);

// The first pass of a request with extra passes. It has no watermark, and it is decoded if the next pass needs the image.
Request first_pass(Request request, const ExtraPasses& passes);

// The pass that needs most memory: the request itself, or its hires pass with an empty start image.
Request largest_pass(const Request& request, const ExtraPasses& passes);

// The extra passes of one image of the request, with empty start images: what a forecast needs.
std::vector<Request> later_passes(const Request& request, const ExtraPasses& passes);

// The memory of the largest pass, and the time of all of them: the later ones run for each image of a batch.
Forecast forecast_of_all_passes(const Engine& engine, const ModelFiles& model, const Request& request, const ExtraPasses& passes);

// Runs the extra passes on an image of the first pass of `request`. The result has the seed and number of `picture`.
Picture with_extra_passes(Session& session, const Request& request, const ExtraPasses& passes, Picture picture,
                          const Progress& progress, PhaseTimes& times);

}  // namespace flux2
