#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "image/image.h"
#include "pipeline/decoded_picture.h"
#include "pipeline/noise.h"
#include "pipeline/sampler.h"
#include "pipeline/schedule.h"
#include "tensor/tensor.h"

namespace flux2 {

// A start image.
struct Canvas {
  std::shared_ptr<const Planes> picture;  // of the request's size
  double strength = 1.0;                  // below 1, only the last part of the schedule runs, starting from the noised image
  // [rows · columns]: 1 regenerated, 0 kept, values between are blended. Empty: everything is regenerated.
  std::vector<float> mask = {};
  std::vector<float> latents = {};  // [128, rows, columns], normalised: if given, used instead of the picture, which is then null
};

// A prompt for part of the image (pipeline/regions.h).
struct Region {
  std::string prompt;
  // One channel; 128 and more is inside. It is stretched over the image, so it may have any size.
  std::shared_ptr<const Image> mask;
  std::vector<std::shared_ptr<const Planes>> references = {};  // of this region alone; sides are multiples of 16
};

// An image as a prompt, which the session's adapter turns into input of the transformer (model/image_prompt.h).
struct ImagePrompt {
  std::vector<float> feature;  // [F]: the vector of the image encoder
  double strength = 1;
  double from = 0, to = 1;  // shares of the steps: it counts from step floor(from · n) to step ceil(to · n) − 1
};

// Everything that determines the pixels of a run. It is already valid: front ends resolve defaults and check values before they
// create one.
struct Request {
  std::string prompt, negative;
  int width = 1024, height = 1024;  // multiples of 16
  int steps = 4;
  double guidance = 1.0;      // an input of models with guidance embedding, ignored by others
  std::optional<double> cfg;  // true classifier-free guidance: two passes a step
  uint64_t seed = 0;          // image k of a batch starts from seed + k
  int batch = 1;
  std::optional<Variation> variation;  // then all images of a batch start from `seed`, and the seed of the variation counts up
  Sampler sampler = Sampler::Euler;
  Schedule schedule;
  double shift = 0;  // 0: the model's rule
  NoiseSource noise;
  TimeRounding time_rounding = TimeRounding::Exact;
  bool tile_x = false, tile_y = false;  // the right edge continues at the left one, the bottom at the top (seamless.h)
  double cache_tolerance = 0;           // of steps that are left out (step_cache.h); 0: every step is computed

  // Reference images, "image 1" of the prompt first; sides are multiples of 16.
  std::vector<std::shared_ptr<const Planes>> references;
  bool reuse_reference_keys = false;  // klein-9B-KV: references are processed once, seeing only each other; their keys and values
                                      // are reused at every step
  bool references_at_zero = false;    // references are conditioned on time 0, for adapters that were trained so
  bool negative_references = true;    // the negative pass of true guidance sees them too

  std::optional<Canvas> canvas;
  std::vector<Region> regions = {};
  std::vector<ImagePrompt> image_prompts = {};  // those of strength 0 count as absent

  // Inputs given instead of computed, on the host: [T, Cctx], [T, Cctx], [128, rows, columns].
  Tensor given_text, given_negative, given_noise;

  // Finished latents [128, rows, columns] on the host: nothing is denoised, they are decoded.
  Tensor given_latents;
  bool decode = true;  // false: images are delivered as latents alone

  std::vector<bool> watermark = {};  // bits that images carry invisibly (image/watermark.h); empty: none

  // What image `index` of the batch starts from.
  struct ImageSeed {
    uint64_t seed = 0;
    std::optional<Variation> variation = {};
  };
  ImageSeed seed_of_image(int index) const;

  std::vector<float> sigmas() const;  // those of the steps that are run
  int64_t rows() const { return height / 16; }
  int64_t columns() const { return width / 16; }
  int64_t tokens() const { return rows() * columns(); }
  int64_t reference_tokens() const;  // of the image and of all regions
};

}  // namespace flux2
