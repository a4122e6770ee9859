#include "image/colour_profile.h"

#include <lcms2.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>

namespace flux2 {

namespace {

constexpr int kUnseen = 2;  // largest change of a sample that is left out

struct CloseProfile {
  void operator()(void* profile) const { cmsCloseProfile(profile); }
};
struct DeleteTransform {
  void operator()(void* transform) const { cmsDeleteTransform(transform); }
};
using Profile = std::unique_ptr<void, CloseProfile>;
using Transform = std::unique_ptr<void, DeleteTransform>;
using Levels = std::array<uint8_t, 256>;

// Grey with the tone curve of sRGB.
Profile srgb_grey() {
  const std::array<double, 5> curve = {2.4, 1 / 1.055, 0.055 / 1.055, 1 / 12.92, 0.04045};
  cmsToneCurve* tone = cmsBuildParametricToneCurve(nullptr, 4, curve.data());
  Profile profile(tone ? cmsCreateGrayProfile(cmsD50_xyY(), tone) : nullptr);
  if (tone) cmsFreeToneCurve(tone);
  return profile;
}

Transform make_transform(const Profile& from, const Profile& to, uint32_t layout, uint32_t flags = 0) {
  if (!from || !to) return nullptr;
  return Transform(cmsCreateTransform(from.get(), layout, to.get(), layout, INTENT_PERCEPTUAL, flags));
}

// What each of the 256 grey levels becomes; `channels` is how many samples the transform takes for one colour.
Levels transformed_levels(const Transform& transform, size_t channels) {
  std::array<uint8_t, 256 * 3> samples;
  for (size_t i = 0; i < 256 * channels; ++i) samples[i] = static_cast<uint8_t>(i / channels);
  cmsDoTransform(transform.get(), samples.data(), samples.data(), 256);
  Levels levels;
  for (size_t i = 0; i < 256; ++i) levels[i] = samples[i * channels + channels / 2];  // green stands for all three
  return levels;
}

bool are_unchanged(const Levels& levels) {
  for (int i = 0; i < 256; ++i)
    if (std::abs(levels[static_cast<size_t>(i)] - i) > kUnseen) return false;
  return true;
}

// Whether colours all over the cube stay what they are.
bool is_srgb(const Profile& profile, const Profile& srgb) {
  const Transform transform = make_transform(profile, srgb, TYPE_RGB_8);
  if (!transform) return false;
  std::vector<uint8_t> before;
  for (int r = 0; r < 256; r += 17)
    for (int g = 0; g < 256; g += 17)
      for (int b = 0; b < 256; b += 17)
        for (int sample : {r, g, b}) before.push_back(static_cast<uint8_t>(sample));
  std::vector<uint8_t> after(before.size());
  cmsDoTransform(transform.get(), before.data(), after.data(), static_cast<cmsUInt32Number>(before.size() / 3));
  return std::equal(before.begin(), before.end(), after.begin(), [](int a, int b) { return std::abs(a - b) <= kUnseen; });
}

ProfileUse apply_levels(Image& image, const Levels& levels) {
  if (are_unchanged(levels)) return ProfileUse::None;
  const auto channels = static_cast<size_t>(image.channels);
  for (size_t i = 0; i < image.pixels.size(); ++i)
    if (i % channels != 3) image.pixels[i] = levels[image.pixels[i]];
  return ProfileUse::Converted;
}

}  // namespace

bool profiles_available() { return true; }

ProfileUse convert_to_srgb(Image& image, std::span<const std::byte> bytes) {
  const Profile profile(cmsOpenProfileFromMem(bytes.data(), static_cast<cmsUInt32Number>(bytes.size())));
  if (!profile || image.pixels.empty()) return ProfileUse::Unsupported;
  const cmsColorSpaceSignature space = cmsGetColorSpace(profile.get());
  if (space == cmsSigGrayData) {  // also of images that are grey in the file and RGB here, because they have alpha
    const Transform transform = make_transform(profile, srgb_grey(), TYPE_GRAY_8);
    return transform ? apply_levels(image, transformed_levels(transform, 1)) : ProfileUse::Unsupported;
  }
  if (space != cmsSigRgbData) return ProfileUse::Unsupported;
  const Profile srgb(cmsCreate_sRGBProfile());
  if (is_srgb(profile, srgb)) return ProfileUse::None;
  if (image.channels == 1) {
    const Transform transform = make_transform(profile, srgb, TYPE_RGB_8);
    return transform ? apply_levels(image, transformed_levels(transform, 3)) : ProfileUse::Unsupported;
  }
  const Transform transform = image.channels == 4 ? make_transform(profile, srgb, TYPE_RGBA_8, cmsFLAGS_COPY_ALPHA)
                                                  : make_transform(profile, srgb, TYPE_RGB_8);
  if (!transform) return ProfileUse::Unsupported;
  for (int y = 0; y < image.height; ++y)
    cmsDoTransform(transform.get(), image.row(y), image.row(y), static_cast<cmsUInt32Number>(image.width));
  return ProfileUse::Converted;
}

}  // namespace flux2
