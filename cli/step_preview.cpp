#include "cli/step_preview.h"

#include <algorithm>

#include "cli/folders.h"
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

bool StepPreview::wanted(const Settings& settings) {
  return settings.text("preview") != "off" && (settings.flag("show-steps") || settings.has("preview-file"));
}

StepPreview::StepPreview(Invocation& run, ModelSession& session)
    : run_(run), session_(session), full_(run.settings.choice("preview", {"off", "linear", "full"}, "linear") == "full") {
  if (run.settings.flag("show-steps")) screen_ = Screen::open(run, "auto");
  file_ = run.settings.text("preview-file");
  const auto data = data_folder(run.environment);
  if (!full_) colours_ = latent_colours(session, data.empty() ? data : data / "cache");
}

void StepPreview::step_done(const StepDone& step) {
  const Vae& vae = *session_.models.vae;
  const Tensor tokens = foreseen_picture(step);
  const Image preview = full_ ? decoded_preview(vae, tokens, step.rows, step.columns)
                              : linear_preview(vae, *colours_, tokens, step.rows, step.columns);
  const Image shown = fitted(preview, static_cast<int>(16 * step.columns), static_cast<int>(16 * step.rows));
  if (!file_.empty()) {
    const std::string extension = file_.extension().string();
    save_image(file_, encode_image(shown, extension.empty() ? ImageFormat::Png : format_from_name(extension), {},
                                   {.quality = 90, .compression_level = 1}));
    if (run_.console.progress() == ProgressMode::Json)
      run_.console.event({{"event", "preview"}, {"file", file_.string()}, {"step", step.step}, {"steps", step.steps}});
  }
  if (screen_) screen_->draw_step(shown);
  if (screen_ && step.step == step.steps) screen_->end_steps();
}

}  // namespace flux2
