#include "pipeline/check_request.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "base/error.h"
#include "base/text.h"
#include "pipeline/regions.h"

namespace flux2 {

namespace {

constexpr int kSideStep = 16, kLargestSide = 16384, kMostImages = 1'000'000, kMostSteps = 1000;
constexpr size_t kMostReferences = 1024, kLongestPrompt = size_t{16} << 20;
constexpr int64_t kMostTextTokens = 65536;
constexpr double kLargestCacheTolerance = 1, kLargestGuidance = 1e4, kLargestShift = 1e6;

bool all_finite(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
}

void check_side(int side, const char* what) {
  check(side >= kSideStep && side <= kLargestSide && side % kSideStep == 0,
        "{} of {} pixels is not possible: a side is a multiple of {} from {} to {}", what, side, kSideStep, kSideStep,
        kLargestSide);
}

void check_planes(const std::shared_ptr<const Planes>& picture, const char* what) {
  check(picture != nullptr, "{} is missing", what);
  check_side(picture->width, what);
  check_side(picture->height, what);
  const auto samples = size_t{3} * static_cast<size_t>(picture->width) * static_cast<size_t>(picture->height);
  check(picture->values.size() == samples, "{} of {}x{} pixels has {} samples instead of {}", what, picture->width,
        picture->height, picture->values.size(), samples);
  check(all_finite(picture->values), "{} contains samples that are not numbers", what);
}

void check_tensor(const Tensor& t, const Shape& expected, const char* what) {
  check(t.shape() == expected, "{} has shape {}; this request needs {}", what, t.shape(), expected);
  check(is_float(t.dtype()), "{} has the type {}; floating point is needed", what, name_of(t.dtype()));
  check(all_finite(t.to_floats()), "{} contains values that are not numbers", what);
}

void check_text(const Tensor& states, int64_t width, const char* what) {
  check(states.rank() == 2 && states.dim(1) == width && states.dim(0) >= 1 && states.dim(0) <= kMostTextTokens,
        "{} has shape {}; this model needs [tokens, {}] with 1 to {} tokens", what, states.shape(), width, kMostTextTokens);
  check_tensor(states, states.shape(), what);
}

void check_number(double value, double low, double high, const char* what) {
  check(value >= low && value <= high, "{} {} is not a number from {} to {}", what, value, low, high);  // also refuses NaN
}

void check_schedule(const Request& r) {
  check(r.steps >= 1 && r.steps <= kMostSteps, "{} steps: between 1 and {} are possible", r.steps, kMostSteps);
  check_number(r.shift, 0, kLargestShift, "the shift");
  check_number(r.cache_tolerance, 0, kLargestCacheTolerance, "the tolerance of the step cache");
  check(r.cache_tolerance == 0 || r.sampler != Sampler::Heun, "the step cache does not work with the sampler heun");
  const Schedule& s = r.schedule;
  if (s.kind == Schedule::Power) check_number(s.power, 1e-6, 1e6, "the power of the schedule");
  if (s.kind != Schedule::Sigmas) return;
  check(s.sigmas.size() >= 2 && s.sigmas.size() <= kMostSteps + 1 && s.sigmas.back() == 0.0f,
        "a list of {} sigmas: between 2 and {} are possible, the last one is 0", s.sigmas.size(), kMostSteps + 1);
  for (size_t i = 0; i < s.sigmas.size(); ++i)
    check(s.sigmas[i] >= 0 && s.sigmas[i] <= 1 && (i == 0 || s.sigmas[i] < s.sigmas[i - 1]),
          "sigma {} of the schedule is {}: they fall from at most 1 to 0", i + 1, s.sigmas[i]);
}

void check_noise(const NoiseSource& noise) {
  const CudaGeometry& gpu = noise.gpu;
  check(gpu.multiprocessors > 0 && gpu.multiprocessors < 100'000 && gpu.threads_per_multiprocessor >= 256 &&
            gpu.threads_per_multiprocessor <= 65536,
        "noise of a GPU with {} multiprocessors of {} threads is not possible", gpu.multiprocessors,
        gpu.threads_per_multiprocessor);
}

void check_canvas(const Request& r, int64_t channels) {
  const Canvas& canvas = *r.canvas;
  if (!canvas.latents.empty()) {
    check(static_cast<int64_t>(canvas.latents.size()) == channels * r.tokens() && all_finite(canvas.latents),
          "the latents to start from are not {} finite values", channels * r.tokens());
  } else {
    check_planes(canvas.picture, "the start image");
    check(canvas.picture->width == r.width && canvas.picture->height == r.height,
          "the start image has {}x{} pixels, the request {}x{}", canvas.picture->width, canvas.picture->height, r.width,
          r.height);
  }
  check_number(canvas.strength, 0, 1, "the strength");
  check(canvas.mask.empty() || static_cast<int64_t>(canvas.mask.size()) == r.tokens(), "a mask of {} values for {} tokens",
        canvas.mask.size(), r.tokens());
  check(std::all_of(canvas.mask.begin(), canvas.mask.end(), [](float v) { return v >= 0 && v <= 1; }),
        "the mask contains values outside 0 … 1");
}

}  // namespace

void check_request(const Request& r, const Models& models) {
  check(models.vae != nullptr || !r.decode, "no autoencoder is loaded");
  check_side(r.width, "an image side");
  check_side(r.height, "an image side");
  if (r.given_latents.defined()) {
    check(models.vae != nullptr, "no autoencoder is loaded");
    check_tensor(r.given_latents, {models.vae->config.packed_channels(), r.rows(), r.columns()}, "the given latents");
    return;
  }
  check(static_cast<bool>(models.transformer), "no transformer is loaded");
  const Flux2Config& config = models.transformer.config();
  check(r.batch >= 1 && r.batch <= kMostImages, "{} images: between 1 and {} are possible", r.batch, kMostImages);
  for (const std::string* prompt : {&r.prompt, &r.negative}) {
    check(prompt->size() <= kLongestPrompt, "a prompt of {} bytes is longer than {}", prompt->size(), kLongestPrompt);
    check(is_utf8(*prompt), "a prompt is not valid UTF-8");
  }
  check_schedule(r);
  check_noise(r.noise);
  if (r.variation) check_number(r.variation->strength, 0, 1, "the strength of the variation");
  check_number(r.guidance, -kLargestGuidance, kLargestGuidance, "the guidance");
  if (r.cfg) check_number(*r.cfg, -kLargestGuidance, kLargestGuidance, "cfg");
  check(r.references.size() <= kMostReferences, "{} references: at most {} are possible", r.references.size(), kMostReferences);
  for (const auto& picture : r.references) check_planes(picture, "a reference");
  if (r.canvas) check_canvas(r, config.channels);
  for (const Region& region : r.regions) {
    check(region.prompt.size() <= kLongestPrompt && is_utf8(region.prompt),
          "the prompt of a region is not valid UTF-8 or too long");
    for (const auto& picture : region.references) check_planes(picture, "a reference of a region");
  }
  check_regions(r);
  if (r.canvas || r.reference_tokens() > 0) check(models.vae != nullptr, "no autoencoder is loaded, so images cannot be read");
  const bool encodes = !r.given_text.defined() || (r.cfg && !r.given_negative.defined());
  check(!encodes || (models.text_encoder && models.tokenizer), "no text encoder is loaded and no text states were given");
  if (r.given_text.defined()) check_text(r.given_text, config.text_width, "the given text states");
  if (r.cfg && r.given_negative.defined()) check_text(r.given_negative, config.text_width, "the given negative text states");
  if (r.given_noise.defined()) {
    check(r.batch == 1, "noise was given for one image, but {} were requested", r.batch);
    check_tensor(r.given_noise, {config.channels, r.rows(), r.columns()}, "the given noise");
  }
}

}  // namespace flux2
