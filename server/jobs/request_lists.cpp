#include "server/jobs/request_lists.h"

#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "base/foreign_text.h"
#include "base/text.h"
#include "image/mask_shapes.h"
#include "pipeline/regions.h"
#include "server/jobs/json_texts.h"

namespace flux2 {

namespace {

constexpr const char* kImagePromptForm = "a list of {\"image\", \"strength\", \"from\", \"to\"}";

std::string region_text(const Json& json) {
  must_be(json, json.is_object() && json.contains("prompt") && json["prompt"].is_string(),
          "a list of {\"prompt\", \"box\" or \"mask\", \"references\"}");
  for (const auto& [key, value] : json.items())
    check(key == "prompt" || key == "box" || key == "mask" || key == "references", "a region has no member \"{}\"",
          printable(key));
  const auto given = [&](const char* name) { return json.contains(name) && !json[name].is_null(); };
  check(given("box") != given("mask"), "a region has either \"box\" or \"mask\"");
  RegionText region{.prompt = json["prompt"].get<std::string>()};
  if (given("box")) region.box = parse_box(numbers_joined(json["box"]));
  else must_be(json["mask"], json["mask"].is_string(), "an image: asset:ID, a data URL or base64");
  check(region.box || !parse_region(region.prompt).box, "the prompt of a region with a mask must not end with a rectangle");
  if (given("references")) texts_of(json["references"]);
  return region.text();
}

}  // namespace

std::string adapter_text(const Json& json) {
  if (json.is_string()) return json.get<std::string>();
  must_be(json, json.is_object() && json.contains("name") && json["name"].is_string(), "a list of {\"name\", \"weight\"}");
  for (const auto& [key, value] : json.items())
    check(key == "name" || key == "weight" || key == "layers", "an adapter has no member \"{}\"", printable(key));
  std::string text = json["name"].get<std::string>();
  check(is_plain_name(text), "\"{}\" is not the name of an adapter", printable(text));
  const bool layers = json.contains("layers") && !json["layers"].is_null();
  if (json.contains("weight") && !json["weight"].is_null()) text += ":" + number_text(json["weight"]);
  else if (layers) text += ":";
  if (layers) text += ":" + must_be(json["layers"], json["layers"].is_string(), "a pattern").get<std::string>();
  return text;
}

std::vector<std::string> region_texts(const Json& json) {
  must_be(json, json.is_array() && !json.empty(), "a list of {\"prompt\", \"box\" or \"mask\", \"references\"}");
  std::vector<std::string> texts;
  for (const Json& region : json) texts.push_back(region_text(region));
  return texts;
}

void for_region_images(Json& regions, const std::function<void(Json& image, const char* kind, const std::string& where)>& use) {
  for (size_t r = 0; r < regions.size(); ++r) {
    const std::string where = fmt::format("regions[{}]", r);
    Json& region = regions[r];
    if (region.contains("mask") && region["mask"].is_string()) use(region["mask"], "mask", where + ".mask");
    if (region.contains("references") && region["references"].is_array())
      for (size_t i = 0; i < region["references"].size(); ++i)
        use(region["references"][i], "reference", fmt::format("{}.references[{}]", where, i));
  }
}

ImagePromptText image_prompt_of(const Json& json, std::string file) {
  must_be(json, json.is_object() && json.contains("image") && json["image"].is_string(), kImagePromptForm);
  ImagePromptText prompt{.file = std::move(file)};
  for (const auto& [key, value] : json.items()) {
    check(key == "image" || key == "strength" || key == "from" || key == "to", "an image prompt has no member \"{}\"",
          printable(key));
    if (key == "image" || value.is_null()) continue;
    check(value.is_number(), "\"{}\" must be a number", key);
    (key == "strength" ? prompt.strength : key == "from" ? prompt.from : prompt.to) = value.get<double>();
  }
  check_image_prompt_numbers(prompt.strength, prompt.from, prompt.to);
  return prompt;
}

void check_image_prompts(const Json& json) {
  must_be(json, json.is_array() && !json.empty(), kImagePromptForm);
  check(json.size() <= kMostImagePrompts, "{} image prompts are given, but at most {} are possible", json.size(),
        kMostImagePrompts);
  for (const Json& one : json) image_prompt_of(one, "image");
}

}  // namespace flux2
