#include "pipeline/request.h"

#include "pipeline/canvas.h"

namespace flux2 {

Request::ImageSeed Request::seed_of_image(int index) const {
  const auto offset = static_cast<uint64_t>(index);
  if (!variation) return {.seed = seed + offset};
  return {.seed = seed, .variation = Variation{variation->seed + offset, variation->strength}};
}

std::vector<float> Request::sigmas() const {
  std::vector<float> all = make_sigmas(schedule, tokens(), steps, shift);
  return canvas ? sigmas_for_strength(std::move(all), canvas->strength) : all;
}

int64_t Request::reference_tokens() const {
  int64_t count = 0;
  const auto add = [&](const auto& pictures) {
    for (const auto& picture : pictures) count += int64_t{picture->height} / 16 * (picture->width / 16);
  };
  add(references);
  for (const Region& region : regions) add(region.references);
  return count;
}

}  // namespace flux2
