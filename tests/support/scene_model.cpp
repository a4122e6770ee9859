#include "tests/support/scene_model.h"

#include <optional>

#include "image/pixels.h"
#include "pipeline/inpaint.h"
#include "pipeline/text_to_image.h"
#include "scenes/draw.h"

namespace flux2::test {
namespace {

ModelFiles files_in(const std::filesystem::path& folder) {
  ModelQuery query;
  query.bundled = folder;
  query.environment = [](const char*) -> const char* { return nullptr; };
  return locate_model(query, {});
}

std::shared_ptr<const Planes> reference_of(const Image& image) {
  return std::make_shared<const Planes>(Planes{image.width, image.height, from_rgb8(image)});
}

}  // namespace

SceneModel::SceneModel(const std::filesystem::path& folder, const std::string& device)
    : engine_({.device = device, .threads = 0, .profile = Profile::Fast}),
      files_(files_in(folder)),
      session_(engine_.open(files_, {})) {}

Image SceneModel::answer(const ScoreCase& question, const SpriteSheet& sheet, const AnswerSettings& settings) {
  Request request;
  request.prompt = question.prompt;
  request.width = settings.width > 0 ? settings.width : files_.defaults.width;
  request.height = settings.height > 0 ? settings.height : files_.defaults.height;
  request.steps = settings.steps > 0 ? settings.steps : files_.defaults.steps;
  request.seed = settings.seed;
  if (files_.defaults.guidance_kind == ModelDefaults::TrueCfg)
    request.cfg = settings.cfg > 0 ? settings.cfg : files_.defaults.guidance;
  const auto drawn = [&](const Scene& scene) { return draw_scene(scene, request.width, request.height, sheet); };
  for (const Scene& scene : question.references) request.references.push_back(reference_of(drawn(scene)));
  std::optional<Inpaint> inpaint;
  if (question.inpaint) {
    InpaintOptions options;
    options.crop = InpaintOptions::Crop::Off;
    inpaint.emplace(std::make_shared<const Image>(drawn(question.references[0])),
                    mask_of(question, request.width, request.height), options);
    request.canvas = inpaint->canvas(1.0);
  }
  Image image;
  text_to_image(*session_, request, {}, [&](const Picture& p) { image = p.decoded.rgb8(Rounding::Nearest); });
  return inpaint ? inpaint->finish(image) : image;
}

}  // namespace flux2::test
