#include "train/data/cache_model.h"

#include <fmt/format.h>

#include <span>

#include "base/sha256.h"

namespace flux2 {

namespace {

struct KnownCacheModel {
  CacheGeometry geometry;
  const char* suffix;
  const char* full_name;
};

constexpr KnownCacheModel kKnownCacheModels[] = {{{6144, 8, 48, 15360, 512}, "f2d", "flux_2_dev"},
                                                 {{3072, 5, 20, 7680, 512}, "f2k4b", "flux_2_klein_4b"},
                                                 {{4096, 8, 24, 12288, 512}, "f2k9b", "flux_2_klein_9b"}};

}  // namespace

CacheModel cache_model(const CacheGeometry& geometry) {
  for (const KnownCacheModel& known : kKnownCacheModels)
    if (known.geometry == geometry) return {known.suffix, known.full_name, geometry.text_length, geometry.text_width};
  const std::string text = fmt::format("h={};d={};s={};c={};t={}", geometry.hidden, geometry.double_blocks,
                                       geometry.single_blocks, geometry.text_width, geometry.text_length);
  const std::string hash = sha256(std::as_bytes(std::span(text))).substr(0, 6);
  return {"f2x" + hash, "flux_2_custom_" + hash, geometry.text_length, geometry.text_width};
}

}  // namespace flux2
