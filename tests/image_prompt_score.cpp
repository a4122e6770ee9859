// Scores an image-prompt adapter of a model of drawn scenes: each question is a scene on a plain background, given as an image
// prompt with an empty text. An answer is right if its background has the same of the twelve colours.
#include <fmt/format.h>

#include <fstream>
#include <iostream>
#include <map>

#include "engine/clip_encoder.h"
#include "engine/engine.h"
#include "engine/image_prompt_adapter.h"
#include "image/write_image.h"
#include "pipeline/text_to_image.h"
#include "scenes/draw.h"
#include "scenes/samples.h"
#include "scenes/words.h"
#include "tests/support/paths.h"
#include "tests/support/scene_sight.h"

namespace flux2::test {
namespace {

constexpr const char* kUsage =
    "usage: image_prompt_score --adapter FILE --encoder FILE [options]\n"
    "  --model FOLDER   model (default: models/pico)\n"
    "  --count N        questions (default: 50)\n"
    "  --strength X     of the image prompts (default: 1)\n"
    "  --cfg X          guidance (default: that of the model)\n"
    "  --steps N        (default: that of the model)\n"
    "  --seed N         of the noise (default: 11); question k has seed N + k\n"
    "  --save FOLDER    writes NNN-prompt.png and NNN-right.png or NNN-wrong.png\n";

struct ScoreOptions {
  std::filesystem::path model = pico_folder(), adapter, encoder, save;
  int count = 50, steps = 0;
  double strength = 1, cfg = 0;
  uint64_t seed = 11;
};

ScoreOptions read_score_options(int count, char** words) {
  ScoreOptions o;
  for (int i = 1; i < count; ++i) {
    const std::string name = words[i];
    check(name.starts_with("--") && i + 1 < count, "{} is unknown or has no value\n{}", name, kUsage);
    const std::string value = words[++i];
    if (name == "--model") o.model = value;
    else if (name == "--adapter") o.adapter = value;
    else if (name == "--encoder") o.encoder = value;
    else if (name == "--count") o.count = std::stoi(value);
    else if (name == "--strength") o.strength = std::stod(value);
    else if (name == "--cfg") o.cfg = std::stod(value);
    else if (name == "--steps") o.steps = std::stoi(value);
    else if (name == "--seed") o.seed = std::stoull(value);
    else if (name == "--save") o.save = value;
    else fail(ErrorCode::InvalidArgument, "{} is unknown\n{}", name, kUsage);
  }
  check(!o.adapter.empty() && !o.encoder.empty(), "an adapter and its encoder are needed\n{}", kUsage);
  return o;
}

int run(int count, char** words) {
  const ScoreOptions o = read_score_options(count, words);
  const Engine engine({.device = "cpu", .threads = 0, .profile = Profile::Fast});
  ModelQuery query;
  query.bundled = o.model;
  query.environment = [](const char*) -> const char* { return nullptr; };
  const ModelFiles files = locate_model(query, {});
  const auto model = engine.open(files, {});
  use_image_prompt(*model, o.adapter);
  const ClipEncoder encoder(o.encoder);
  if (!o.save.empty()) std::filesystem::create_directories(o.save);
  const SpriteSheet none;
  SceneOptions plain;
  plain.pattern_share = plain.some_share = plain.couple_share = 0;

  const auto answer = [&](int k, const Image* prompt) {
    Request request;
    request.width = files.defaults.width;
    request.height = files.defaults.height;
    request.steps = o.steps > 0 ? o.steps : files.defaults.steps;
    request.seed = o.seed + static_cast<uint64_t>(k);
    if (files.defaults.guidance_kind == ModelDefaults::TrueCfg) request.cfg = o.cfg > 0 ? o.cfg : files.defaults.guidance;
    if (prompt)
      request.image_prompts.push_back(
          {.feature = encoder.feature(*prompt, model->image_prompt->config.feature), .strength = o.strength});
    Image picture;
    text_to_image(*model, request, {}, [&](const Picture& p) { picture = p.decoded.rgb8(Rounding::Nearest); });
    return picture;
  };
  int right = 0, by_chance = 0;
  std::map<int, std::pair<int, int>> by_colour;
  for (int k = 0; k < o.count; ++k) {
    const Scene scene = scene_sample(SceneSampleKind::Plain, 777, static_cast<uint64_t>(k), plain, none, 1).target;
    const Image prompt = draw_scene(scene, files.defaults.width, files.defaults.height, none);
    const int wanted = scene.background.colour;
    const Image picture = answer(k, &prompt);
    const bool fits = see_background(picture).colour == wanted;
    right += fits;
    by_chance += see_background(answer(k, nullptr)).colour == wanted;
    by_colour[wanted].first += fits;
    ++by_colour[wanted].second;
    if (!o.save.empty()) {
      save_image(o.save / fmt::format("{:03}-prompt.png", k), encode_png(prompt));
      save_image(o.save / fmt::format("{:03}-{}.png", k, fits ? "right" : "wrong"), encode_png(picture));
    }
  }
  for (const auto& [colour, tally] : by_colour)
    fmt::print("{:<8} {} of {}\n", scene_colours()[static_cast<size_t>(colour)].words[0], tally.first, tally.second);
  fmt::print("{} of {} images have the background of their image prompt; {} without it\n", right, o.count, by_chance);
  return 0;
}

}  // namespace
}  // namespace flux2::test

int main(int count, char** words) {
  try {
    return flux2::test::run(count, words);
  } catch (const std::exception& e) {
    std::cerr << e.what() << "\n";
    return 1;
  }
}
