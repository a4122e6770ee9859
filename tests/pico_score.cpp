// Scores a model of drawn scenes: asks for pictures, looks at them (support/scene_sight.h) and counts right answers by category.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <fstream>
#include <iostream>
#include <map>

#include "base/json.h"
#include "image/write_image.h"
#include "tests/support/paths.h"
#include "tests/support/scene_model.h"

namespace flux2::test {
namespace {

constexpr const char* kUsage =
    "usage: pico_score [options]\n"
    "  --model FOLDER      model to score (default: models/pico)\n"
    "  --device NAME       cpu or cuda:0 (default: cpu)\n"
    "  --per-category N    pictures of each category (default: 32)\n"
    "  --only NAME         one category only\n"
    "  --size WxH          of the pictures (default: that of the model)\n"
    "  --steps N           (default: that of the model)\n"
    "  --cfg X             guidance (default: that of the model)\n"
    "  --seed N            of the noise (default: 11)\n"
    "  --sheet FILE        sprites (default: examples/pico/things.png)\n"
    "  --save FOLDER       writes every picture as CATEGORY-NNN-right.png or -wrong.png\n"
    "  --json FILE         writes the scores\n";

struct Options {
  std::filesystem::path model = pico_folder(), sheet = source_folder() / "examples/pico/things.png", save, json;
  std::string device = "cpu", only;
  int per_category = 32;
  AnswerSettings answer;
};

Options read_options(int count, char** words) {
  Options o;
  for (int i = 1; i < count; ++i) {
    const std::string name = words[i];
    check(name.starts_with("--") && i + 1 < count, "{} is unknown or has no value\n{}", name, kUsage);
    const std::string value = words[++i];
    if (name == "--model") o.model = value;
    else if (name == "--device") o.device = value;
    else if (name == "--per-category") o.per_category = std::stoi(value);
    else if (name == "--only") o.only = value;
    else if (name == "--steps") o.answer.steps = std::stoi(value);
    else if (name == "--cfg") o.answer.cfg = std::stod(value);
    else if (name == "--seed") o.answer.seed = std::stoull(value);
    else if (name == "--sheet") o.sheet = value;
    else if (name == "--save") o.save = value;
    else if (name == "--json") o.json = value;
    else if (name == "--size") {
      const size_t x = value.find('x');
      check(x != value.npos, "--size: \"{}\" is not like 192x128", value);
      o.answer.width = std::stoi(value.substr(0, x));
      o.answer.height = std::stoi(value.substr(x + 1));
    } else fail(ErrorCode::InvalidArgument, "{} is unknown\n{}", name, kUsage);
  }
  return o;
}

int run(int count, char** words) {
  const Options o = read_options(count, words);
  const SpriteSheet sheet(o.sheet);
  SceneModel model(o.model, o.device);
  const double aspect = o.answer.width > 0 ? static_cast<double>(o.answer.width) / o.answer.height : 1;
  if (!o.save.empty()) std::filesystem::create_directories(o.save);

  struct Tally {
    int right = 0, all = 0;
  };
  std::map<std::string, Tally> tallies;
  Tally whole;
  const auto start = std::chrono::steady_clock::now();
  for (const ScoreCase& q : score_cases(o.per_category, 1, sheet, aspect)) {
    if (!o.only.empty() && q.category != o.only) continue;
    const Image picture = model.answer(q, sheet, o.answer);
    const bool right = is_right(q, picture, sheet);
    Tally& tally = tallies[q.category];
    if (!o.save.empty())
      save_image(o.save / fmt::format("{}-{:03}-{}.png", q.category, tally.all, right ? "right" : "wrong"), encode_png(picture));
    tally.right += right;
    ++tally.all;
    whole.right += right;
    ++whole.all;
  }
  check(whole.all > 0, "there is no category \"{}\"; use one of: {}", o.only, fmt::join(score_categories(), ", "));
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  Json json = Json::object();
  double mean = 0;
  for (const std::string& category : score_categories()) {
    if (!tallies.contains(category)) continue;
    const Tally& tally = tallies[category];
    const double share = 100.0 * tally.right / tally.all;
    mean += share / static_cast<double>(tallies.size());
    json[category] = share;
    fmt::print("{:<11} {:5.1f} %  ({} of {})\n", category, share, tally.right, tally.all);
  }
  fmt::print("{:<11} {:5.1f} %\n{} pictures in {:.1f} s\n", "mean", mean, whole.all, seconds);
  json["mean"] = mean;
  json["pictures"] = whole.all;
  if (!o.json.empty()) std::ofstream(o.json) << json.dump(1) << "\n";
  return 0;
}

}  // namespace
}  // namespace flux2::test

int main(int count, char** words) {
  if (count > 1 && (std::string_view(words[1]) == "--help" || std::string_view(words[1]) == "-h")) {
    std::cout << flux2::test::kUsage;
    return 0;
  }
  try {
    return flux2::test::run(count, words);
  } catch (const std::exception& e) {
    std::cerr << "pico_score: " << e.what() << "\n";
    return 1;
  }
}
