#include "app/step_preview.h"

#include <algorithm>
#include <utility>

#include "app/context.h"
#include "app/registry_access.h"
#include "base/path_exists.h"
#include "image/resize.h"
#include "image/write_image.h"

namespace flux2 {

namespace {

constexpr int kLargest = 512;  // pixels a side

}  // namespace

// Linear previews have a pixel for eight: they are shown as large as the picture, decoded ones as they are, both up to a limit.
Image SmallPreview::fitted() const {
  const double scale = std::min(1.0, static_cast<double>(kLargest) / std::max(width, height));
  const auto side = [&](int s) { return std::max(1, static_cast<int>(s * scale)); };
  return resize(image, side(width), side(height), ResizeFilter::Bicubic);
}

std::filesystem::path tiny_decoder_file(const RequestSpec& spec, const VaeConfig& vae, const AppContext& context) {
  constexpr int64_t kSmallestFlux2 = 96;  // width of the decoder; smaller models have latents of their own
  if (spec.preview == "linear" || spec.preview == "full") return {};
  const bool wanted = spec.preview == "tiny";
  if (!wanted && vae.decoder_widths[0] < kSmallestFlux2) return {};
  if (const auto registry = look_into_registry(context))
    for (const ModelRecord& r : registry->all())
      if (r.type == ModelType::TinyVae && r.state == ModelState::Ready && path_exists(r.path)) return r.path;
  if (!wanted) return {};
  throw Error(ErrorCode::NotFound, spec.origin("preview") + " tiny: no tiny autoencoder for FLUX.2 is registered",
              Hint("{0} installs one", {run_command("models install taef2")}));
}

StepPreview::StepPreview(const RequestSpec& spec, ModelSession& session, std::shared_ptr<const TinyDecoder> tiny,
                         std::shared_ptr<const LatentColours> colours)
    : session_(session), tiny_(std::move(tiny)), colours_(std::move(colours)), file_(spec.preview_file.value_or("")) {}

SmallPreview StepPreview::step_done(const StepDone& step) {
  const Vae& vae = *session_.models.vae;
  const Tensor tokens = foreseen_picture(step);
  Image image = tiny_      ? tiny_preview(*tiny_, *session_.stream, tokens, step.rows, step.columns)
                : colours_ ? linear_preview(vae, *colours_, tokens, step.rows, step.columns)
                           : decoded_preview(vae, tokens, step.rows, step.columns);
  SmallPreview preview{std::move(image), static_cast<int>(16 * step.columns), static_cast<int>(16 * step.rows)};
  if (!file_.empty()) {
    const std::string extension = file_.extension().string();
    save_image(file_, encode_image(preview.fitted(), extension.empty() ? ImageFormat::Png : format_from_name(extension), {},
                                   {.quality = 90, .compression_level = 1}));
  }
  return preview;
}

}  // namespace flux2
