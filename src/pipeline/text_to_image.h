#pragma once

#include <functional>
#include <vector>

#include "pipeline/decode.h"
#include "pipeline/progress.h"
#include "pipeline/request.h"
#include "pipeline/session.h"
#include "pipeline/step_cache.h"

namespace flux2 {

struct Picture {
  DecodedPicture decoded;  // empty when the request does not ask for it
  uint64_t seed = 0;
  std::optional<Variation> variation = {};
  int index = 0;                // in the batch
  bool decoded_in_f32 = false;  // the first decoding was broken
  int64_t rows = 0, columns = 0;
  std::vector<float> latents;  // [128, rows, columns], normalised, as the decoder got them
  StepCacheUse cache = {};     // if the request asks for one
};

// Seconds spent in each phase.
struct PhaseTimes {
  double load = 0, text = 0, references = 0, denoise = 0, decode = 0;  // load: of networks that were not in memory
};

// The image with these bits in it (image/watermark.h). Warns if they cannot be read back.
DecodedPicture watermarked(const DecodedPicture& picture, const std::vector<bool>& bits, const Log& log);

// Generates the images of a request. Each is delivered as soon as it is decoded, so finished images survive an interruption. If
// memory runs out while an image is decoded, its latents are decoded again in smaller and smaller tiles; the session then keeps
// using tiles of that size.
PhaseTimes text_to_image(Session& session, const Request& request, const Progress& progress,
                         const std::function<void(Picture)>& deliver);

}  // namespace flux2
