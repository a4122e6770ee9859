#include "app/step_preview.h"

#include <algorithm>

#include "engine/preview_colours.h"
#include "image/resize.h"
#include "image/write_image.h"

namespace flux2 {

namespace {

constexpr int kLargest = 512;  // pixels a side

// Linear previews have a pixel for eight: they are shown as large as the picture, decoded ones as they are, both up to a limit.
Image fitted(const Image& preview, int width, int height) {
  const double scale = std::min(1.0, static_cast<double>(kLargest) / std::max(width, height));
  const auto side = [&](int s) { return std::max(1, static_cast<int>(s * scale)); };
  return resize(preview, side(width), side(height), ResizeFilter::Bicubic);
}

}  // namespace

StepPreview::StepPreview(const RequestSpec& spec, LoadedModel& model, const std::filesystem::path& cache)
    : model_(model), full_(spec.preview == "full"), file_(spec.preview_file.value_or("")) {
  if (!full_) colours_ = latent_colours(model, cache);
}

Image StepPreview::step_done(const StepDone& step) {
  const Vae& vae = *model_.models.vae;
  const Tensor tokens = foreseen_picture(step);
  const Image preview = full_ ? decoded_preview(vae, tokens, step.rows, step.columns)
                              : linear_preview(vae, *colours_, tokens, step.rows, step.columns);
  Image image = fitted(preview, static_cast<int>(16 * step.columns), static_cast<int>(16 * step.rows));
  if (!file_.empty()) {
    const std::string extension = file_.extension().string();
    save_image(file_, encode_image(image, extension.empty() ? ImageFormat::Png : format_from_name(extension), {},
                                   {.quality = 90, .compression_level = 1}));
  }
  return image;
}

}  // namespace flux2
