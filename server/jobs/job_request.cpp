#include "server/jobs/job_request.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <random>

#include "app/adapters.h"
#include "app/image_prompt_files.h"
#include "app/request_limits.h"
#include "base/base64.h"
#include "base/foreign_text.h"
#include "base/sha256.h"
#include "base/text.h"
#include "image/mask_shapes.h"
#include "pipeline/regions.h"
#include "record/image_prompt_text.h"
#include "server/http/errors.h"
#include "server/jobs/studio_request.h"
#include "server/jobs/tried_adapters.h"
#include "server/store/ids.h"

namespace flux2 {

namespace {

// The field that a member sets, and its values as the command line would write them.
struct FieldTexts {
  std::string field;
  std::vector<std::string> texts;
};

// Fields that a request over the network may set under their own names. Those that a project file may set name no files and take
// nothing of the machine; the others here are about one image.
bool is_plain_field(const Field& field) {
  static const std::vector<std::string> more = {"prompt",     "mask_box",      "mask_ellipse",     "mask_polygon", "mask_wand",
                                                "mask_color", "mask_invert",   "variation",        "detail_box",   "base",
                                                "upsample",   "upsample_each", "rewritten_prompt", "moderation"};
  static const std::vector<std::string> fewer = {"sidecar", "output_type", "preview", "extend", "align", "match", "metadata"};
  const auto in = [&](const std::vector<std::string>& names) {
    return std::find(names.begin(), names.end(), field.name) != names.end();
  };
  if (in(fewer) || field.later) return false;
  return in(more) || field.project == Field::Always;
}

std::string text_of_json(const Json& json) { return json.is_string() ? json.get<std::string>() : json.dump(); }

const Json& must_be(const Json& json, bool is_right, const char* what) {
  check(is_right, "must be {}", what);
  return json;
}

std::vector<std::string> texts_of(const Json& json) {
  must_be(json, json.is_array(), "a list of texts");
  std::vector<std::string> texts;
  for (const Json& item : json) texts.push_back(must_be(item, item.is_string(), "a list of texts").get<std::string>());
  return texts;
}

std::string number_text(const Json& json) {
  must_be(json, json.is_number(), "a number");
  return json.is_number_float() ? fmt::format("{}", json.get<double>()) : json.dump();
}

std::string numbers_joined(const Json& json) {
  must_be(json, json.is_array(), "a list of numbers");
  std::vector<std::string> texts;
  for (const Json& item : json) texts.push_back(number_text(item));
  return fmt::format("{}", fmt::join(texts, ","));
}

// "name", or {"name": …, "weight": …, "layers": …}, as the option of the command line writes it.
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

// {"prompt": …, "box": [x, y, w, h] or "mask": image, "references": [images]}, as the option of the command line writes it.
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

std::vector<std::string> region_texts(const Json& json) {
  must_be(json, json.is_array() && !json.empty(), "a list of {\"prompt\", \"box\" or \"mask\", \"references\"}");
  std::vector<std::string> texts;
  for (const Json& region : json) texts.push_back(region_text(region));
  return texts;
}

// Calls `use` for every image of the regions of a checked request.
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

constexpr const char* kImagePromptForm = "a list of {\"image\", \"strength\", \"from\", \"to\"}";

// {"image": …, "strength": …, "from": …, "to": …} with the path of the image's file, as the option of the command line writes it.
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

void check_image_prompts_member(const Json& json) {
  must_be(json, json.is_array() && !json.empty(), kImagePromptForm);
  check(json.size() <= kMostImagePrompts, "{} image prompts are given, but at most {} are possible", json.size(),
        kMostImagePrompts);
  for (const Json& one : json) image_prompt_of(one, "image");
}

// A member whose JSON form differs from the field's own, or that is no field.
struct SpecialMember {
  const char* type;   // for the OpenAPI document
  const char* field;  // the field it sets; "" if it sets none
  const char* help;
  // The field's texts; empty: the member leaves the field alone. Throws InvalidArgument.
  std::function<std::vector<std::string>(const Json&)> texts;
};

std::vector<std::string> refused(const char* what) { fail(ErrorCode::InvalidArgument, "{} not supported yet", what); }

const std::map<std::string, SpecialMember>& special_members() {
  static const std::map<std::string, SpecialMember> members = [] {
    std::map<std::string, SpecialMember> m;
    m["kind"] = {"string", "", "generate, edit or inpaint", [](const Json& j) {
                   must_be(j, j.is_string(), "generate, edit or inpaint");
                   return std::vector<std::string>{};
                 }};
    m["count"] = {"integer", "batch", "how many images; seeds count up", [](const Json& j) -> std::vector<std::string> {
                    return {must_be(j, j.is_number_integer(), "a whole number").dump()};
                  }};
    m["rounds"] = {"integer", "", "the images are made in this many batches, one after the other", [](const Json& j) {
                     check(j.is_number_integer() && j.get<double>() >= 1 && j.get<double>() <= 1000,
                           "must be a whole number from 1 to 1000");
                     return std::vector<std::string>{};
                   }};
    m["references"] = {"array", "", "reference images: asset:ID, data URL or base64", [](const Json& j) {
                         texts_of(j);
                         return std::vector<std::string>{};
                       }};
    for (const auto& [image, help] :
         {std::pair{"canvas", "the image to change"}, std::pair{"mask", "white areas are regenerated"},
          std::pair{"mask_from_diff", "regenerate the pixels in which this image differs"},
          std::pair{"detail_mask", "generate the white area once more, enlarged"}})
      m[image] = {"string", "", help, [](const Json& j) {
                    must_be(j, j.is_string(), "an image: asset:ID, a data URL or base64");
                    return std::vector<std::string>{};
                  }};
    m["model"] = {"string", "model", "name or key of a registered model, or a variant",
                  [](const Json& j) -> std::vector<std::string> {
                    const std::string name = must_be(j, j.is_string(), "a name").get<std::string>();
                    check(is_plain_name(name), "\"{}\" is not the name of a model", printable(name));
                    return {name};
                  }};
    m["loras"] = {"array", "", "adapters: [{\"name\", \"weight\", \"layers\"}]", [](const Json& j) {
                    must_be(j, j.is_array(), "a list of {\"name\", \"weight\"}");
                    for (const Json& one : j) adapter_text(one);
                    return std::vector<std::string>{};
                  }};
    m["regions"] = {
        "array", "",
        "prompts for parts of the image: [{\"prompt\", \"box\": [x, y, w, h] or \"mask\": image, \"references\": [images]}]",
        [](const Json& j) {
          region_texts(j);
          return std::vector<std::string>{};
        }};
    m["image_prompts"] = {
        "array", "",
        "images as prompts, up to 16: [{\"image\": image, \"strength\": 0 to 2, \"from\": and \"to\": the part of the "
        "steps in which it counts, 0 to 1}]; needs image_prompt_adapter",
        [](const Json& j) {
          check_image_prompts_member(j);
          return std::vector<std::string>{};
        }};
    for (const auto& [part, help] :
         {std::pair{"image_prompt_adapter", "name or key of a registered image-prompt adapter, or run:NAME@STEP"},
          std::pair{"image_prompt_encoder", "name or key of a registered image encoder; absent: one that fits the adapter"}})
      m[part] = {"string", "", help, [](const Json& j) {
                   const std::string name = must_be(j, j.is_string(), "a name").get<std::string>();
                   check(is_plain_name(name), "\"{}\" is not the name of a registered model", printable(name));
                   return std::vector<std::string>{};
                 }};
    m["match"] = {"string", "match", "take the size from reference N, or off", [](const Json& j) -> std::vector<std::string> {
                    return {must_be(j, j.is_number_integer() || j.is_string(), "a number or \"off\"").is_string()
                                ? j.get<std::string>()
                                : j.dump()};
                  }};
    m["extend"] = {
        "array", "extend", "enlarge the canvas: [left, top, right, bottom]",
        [](const Json& j) -> std::vector<std::string> { return {j.is_string() ? j.get<std::string>() : numbers_joined(j)}; }};
    m["align"] = {"boolean", "align", "match the result with what is kept", [](const Json& j) -> std::vector<std::string> {
                    return {j.is_boolean() ? (j.get<bool>() ? "on" : "off") : text_of_json(j)};
                  }};
    m["sigmas"] = {"array", "schedule", "the noise levels themselves",
                   [](const Json& j) -> std::vector<std::string> { return {"sigmas:" + numbers_joined(j)}; }};
    m["output_format"] = {"string", "format", "png, jpg, webp or ppm", [](const Json& j) -> std::vector<std::string> {
                            const std::string name = must_be(j, j.is_string(), "a format").get<std::string>();
                            return {name == "jpeg" ? "jpg" : name};
                          }};
    m["output_quality"] = {"integer", "quality", "1 to 100 for jpg and webp", [](const Json& j) -> std::vector<std::string> {
                             return {must_be(j, j.is_number_integer(), "a whole number").dump()};
                           }};
    m["metadata"] = {"array", "metadata", "a1111, json, comfy; an empty list: none",
                     [](const Json& j) -> std::vector<std::string> {
                       if (j.is_string()) return {j.get<std::string>()};
                       const auto texts = texts_of(j);
                       return {texts.empty() ? "none" : fmt::format("{}", fmt::join(texts, ","))};
                     }};
    m["preview"] = {
        "object", "preview",
        "{\"mode\": \"off\", \"linear\", \"tiny\" or \"full\", \"every\": steps between previews, \"count\": how many}",
        [](const Json& j) -> std::vector<std::string> {
          if (j.is_string()) return {j.get<std::string>()};
          must_be(j, j.is_object(), "{\"mode\": …}");
          for (const auto& [key, value] : j.items())
            check(key == "mode" || key == "every" || key == "count" || key == "size", "preview has no member \"{}\"",
                  printable(key));
          for (const char* number : {"every", "count"}) {
            const Json value = j.value(number, Json(1));
            check(value.is_number_integer() && value.get<double>() >= 1 && value.get<double>() <= 1000,
                  "\"{}\" must be a whole number from 1 to 1000", number);
          }
          check(j.value("size", Json(512)) == 512, "previews have at most 512 pixels a side: \"size\" can only be 512");
          return j.contains("mode") ? std::vector<std::string>{text_of_json(j["mode"])} : std::vector<std::string>{};
        }};
    m["priority"] = {"integer", "", "jobs of higher priority run first", [](const Json& j) {
                       check(j.is_number_integer() && j.get<double>() >= -1000 && j.get<double>() <= 1000,
                             "must be a whole number from -1000 to 1000");
                       return std::vector<std::string>{};
                     }};
    m["client_ref"] = {"string", "", "free text that comes back with the job", [](const Json& j) {
                         check(j.is_string() && j.get_ref<const std::string&>().size() <= 1000,
                               "must be a string of at most 1000 bytes");
                         return std::vector<std::string>{};
                       }};
    m["tags"] = {"array", "", "texts that are kept with the job", [](const Json& j) {
                   check(texts_of(j).size() <= 64, "must be a list of at most 64 strings");
                   return std::vector<std::string>{};
                 }};
    m["preempt"] = {"boolean", "", "pause a training run that holds the device", [](const Json& j) {
                      must_be(j, j.is_boolean(), "true or false");
                      return std::vector<std::string>{};
                    }};
    m["save"] = {"boolean", "", "false: the images are deleted after an hour", [](const Json& j) {
                   must_be(j, j.is_boolean(), "true or false");
                   return std::vector<std::string>{};
                 }};
    m["scan_triggers"] = {"boolean", "", "look for the triggers of elements in the prompt", [](const Json& j) {
                            must_be(j, j.is_boolean(), "true or false");
                            return std::vector<std::string>{};
                          }};
    m["project_id"] = {"string", "", "the project that the images belong to; it fills what the request leaves out",
                       [](const Json& j) {
                         must_be(j, j.is_string(), "the id of a project");
                         return std::vector<std::string>{};
                       }};
    m["elements"] = {"array", "", "elements that the image shows, by id, name or trigger", [](const Json& j) {
                       check(texts_of(j).size() <= 64, "must be a list of at most 64 elements");
                       return std::vector<std::string>{};
                     }};
    m["mask_text"] = {
        "string", "", "inpainting: regenerate what these words name; needs a mask service", [](const Json& j) {
          check(j.is_string() && !j.get_ref<const std::string&>().empty() && j.get_ref<const std::string&>().size() <= 1000,
                "must be a text of 1 to 1000 bytes");
          return std::vector<std::string>{};
        }};
    m["mask_points"] = {"array", "", "inpainting: regenerate the object at [[x, y], …]; needs a mask service", [](const Json& j) {
                          check(j.is_array() && !j.empty(), "must be a list of points, [[x, y], …]");
                          for (const Json& point : j) {
                            check(point.is_array() && (point.size() == 2 || point.size() == 3),
                                  "must be a list of points, [[x, y], …]");
                            for (const Json& number : point) must_be(number, number.is_number(), "a list of points, [[x, y], …]");
                          }
                          return std::vector<std::string>{};
                        }};
    m["mask_confidence"] = {"number", "", "how sure the mask service must be, 0 to 1 (0.5)", [](const Json& j) {
                              check(j.is_number() && j.get<double>() >= 0 && j.get<double>() <= 1,
                                    "must be a number from 0 to 1");
                              return std::vector<std::string>{};
                            }};
    m["number_refs"] = {"boolean", "", "say in the prompt which reference shows which element", [](const Json& j) {
                          must_be(j, j.is_boolean(), "true or false");
                          return std::vector<std::string>{};
                        }};
    m["scan_scope"] = {"string", "", "project, shared or all: whose triggers are looked for", [](const Json& j) {
                         check(j == "project" || j == "shared" || j == "all", "must be project, shared or all");
                         return std::vector<std::string>{};
                       }};
    m["element_text"] = {"string", "", "name+description, name or keep: what replaces a trigger", [](const Json& j) {
                           check(j == "name+description" || j == "name" || j == "keep", "must be name+description, name or keep");
                           return std::vector<std::string>{};
                         }};
    m["cache"] = {"string", "", "only off",
                  [](const Json& j) { return j == "off" ? std::vector<std::string>{} : refused("step caches are"); }};
    m["quality_target_s"] = {"number", "", "not supported yet",
                             [](const Json&) { return refused("choosing settings for a target time is"); }};
    return m;
  }();
  return members;
}

// Names that Milimo and other studios use for members of ours.
const std::map<std::string, std::string>& foreign_members() {
  static const std::map<std::string, std::string> names = {{"num_inference_steps", "steps"},
                                                           {"guidance_scale", "guidance"},
                                                           {"negative_prompt", "negative"},
                                                           {"reference_images", "references"},
                                                           {"image_path", "canvas"},
                                                           {"mask_path", "mask"},
                                                           {"text_mask", "mask_text"},
                                                           {"points", "mask_points"},
                                                           {"num_images", "count"},
                                                           {"batch", "count"},
                                                           {"lora", "loras"},
                                                           {"input", "references"},
                                                           {"format", "output_format"},
                                                           {"quality", "output_quality"}};
  return names;
}

// Foreign names replaced, null members left out: null means "not set".
Json in_our_words(const Json& request, std::vector<std::string>& warnings) {
  Json ours = Json::object();
  Json references = Json::array();
  const auto add = [&](const Json& images) {
    for (const Json& image : images.is_array() ? images : Json::array({images})) references.push_back(image);
  };
  for (const auto& [key, value] : request.items()) {
    if (value.is_null()) continue;
    if (key == "element_images" || key == "ip_adapter_images" || key == "reference_images" || key == "references" ||
        key == "input") {
      if (key != "references") warnings.push_back(key + " is used as references");
      add(value);
    } else if (key == "enable_ae") {
      warnings.push_back("enable_ae has no effect");
    } else if (key == "enable_true_cfg") {
      if (value == true) {
        ours["cfg"] = 2.0;
        ours["no_negative_refs"] = true;
        warnings.push_back("enable_true_cfg is used as cfg 2.0");
      }
    } else if (const auto found = foreign_members().find(key); found != foreign_members().end()) {
      warnings.push_back(key + " is used as " + found->second);
      if (!ours.contains(found->second)) ours[found->second] = value;
    } else {
      ours[key] = value;
    }
  }
  if (!references.empty()) ours["references"] = std::move(references);
  return ours;
}

std::optional<FieldTexts> field_texts(const std::string& key, const Json& value) {
  const auto& special = special_members();
  if (const auto found = special.find(key); found != special.end()) {
    auto texts = found->second.texts(value);
    if (*found->second.field == 0 || texts.empty()) return std::nullopt;
    return FieldTexts{found->second.field, std::move(texts)};
  }
  const Field* field = find_field(key);
  if (!field || !is_plain_field(*field)) {
    std::vector<std::string> names;
    for (const JobMember& member : job_members()) names.push_back(member.name);
    const std::string near = nearest_word(key, names);
    fail(ErrorCode::InvalidArgument, "unknown member{}", near.empty() ? "" : "; did you mean " + near + "?");
  }
  // Old records write some choices as true and false; a request must name its choice.
  const bool is_switch = std::find(field->choices.begin(), field->choices.end(), "on") != field->choices.end();
  check(field->choices.empty() || is_switch || !value.is_boolean(), "must be one of {}", fmt::join(field->choices, ", "));
  return FieldTexts{field->name, print_value(value_from_json(*field, value, key))};
}

// A checkpoint of a training run, or an adapter that is registered or in the model folders.
std::string adapter_setting(const std::string& text, const AssetStore& assets, const AppContext& context) {
  if (!is_tried_name(text)) return text_of(adapter_by_name(text, "loras", context));
  const TriedAdapter tried = tried_adapter(text, assets.folder());
  return tried.file.string() + (tried.rest.empty() ? ":1" : tried.rest);
}

// The file of an image-prompt adapter: a checkpoint of a training run or a registered one.
std::string image_prompt_adapter_setting(const std::string& name, const AssetStore& assets, const AppContext& context) {
  const char* member = "image_prompt_adapter";
  if (!is_tried_name(name)) return registered_image_prompt_part(ImagePromptPart::Adapter, name, member, context).string();
  const TriedAdapter tried = tried_adapter(name, assets.folder());
  check(tried.rest.empty(), "{}: \"{}\" has a strength; give it with the image prompts", member, printable(name));
  return tried.file.string();
}

std::string asset_id_of(const std::string& text) {
  constexpr std::string_view kPrefix = "asset:";
  if (!text.starts_with(kPrefix)) return {};
  std::string id = text.substr(kPrefix.size());
  if (const std::string bare = id_without_prefix(id, "ast_"); !bare.empty()) id = bare;
  return id;
}

// Members that say which part of an image to regenerate.
constexpr std::array kMasks = {"mask",       "mask_box",       "mask_ellipse", "mask_polygon", "mask_wand",
                               "mask_color", "mask_from_diff", "extend",       "mask_text",    "mask_points"};
constexpr const char* kOnlyInpaint = "belongs to jobs of kind inpaint";
// Members that are images, and what each image is.
constexpr std::array<std::pair<const char*, const char*>, 4> kImages = {
    {{"canvas", "reference"}, {"mask", "mask"}, {"mask_from_diff", "reference"}, {"detail_mask", "mask"}}};

void require_images(const Json& request, const std::string& kind, bool elements_have_images,
                    std::vector<HttpError::FieldProblem>& problems) {
  const size_t references = request.contains("references") ? request["references"].size() : 0;
  if (kind == "edit" && references == 0 && !elements_have_images)
    problems.push_back({"references", "an edit needs at least one reference image"});
  if (kind == "inpaint") {
    if (!request.contains("canvas")) problems.push_back({"canvas", "inpainting needs the image to change"});
    const auto gives_mask = [&](const char* member) { return request.contains(member); };
    if (std::none_of(kMasks.begin(), kMasks.end(), gives_mask))
      problems.push_back({"mask",
                          "inpainting needs a mask, a selection such as mask_box or mask_wand, mask_text, mask_points or "
                          "extend"});
  } else {
    if (request.contains("canvas")) problems.push_back({"canvas", kOnlyInpaint});
    for (const char* member : kMasks)
      if (request.contains(member)) problems.push_back({member, kOnlyInpaint});
  }
}

uint64_t random_seed() {
  std::random_device device;
  return std::uniform_int_distribution<uint64_t>(0, 0xffffffffu)(device);
}

}  // namespace

std::string merge_key_of(const Json& request) {
  if (request.value("kind", std::string()) != "generate") return {};
  for (const char* alone :
       {"references", "regions", "image_prompts", "strict", "deadline", "rounds", "hires", "detail_box", "detail_mask"})
    if (request.contains(alone)) return {};
  nlohmann::json key = nlohmann::json::object();  // in the order of its keys
  for (const auto& [name, value] : request.items()) key[name] = value;
  for (const char* own :
       {"prompt",        "negative",      "seed",           "count",       "client_ref", "priority", "tags",
        "save",          "output_format", "output_quality", "metadata",    "preview",    "style",    "private",
        "scan_triggers", "scan_scope",    "element_text",   "number_refs", "project_id", "elements", kResolution})
    key.erase(own);
  const std::string text = key.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return sha256(std::as_bytes(std::span(text)));
}

bool is_image_kind(std::string_view kind) { return kind == "generate" || kind == "edit" || kind == "inpaint"; }

bool is_text_kind(std::string_view kind) { return kind == "rewrite" || kind == "describe"; }

Task task_of_kind(std::string_view kind) {
  return kind == "inpaint" ? Task::Inpaint : kind == "edit" ? Task::Edit : Task::Generate;
}

std::vector<JobMember> job_members() {
  std::vector<JobMember> members;
  const auto type_of = [](const Field& field) {
    switch (field.type) {
      case FieldType::Integer:
      case FieldType::Seed: return "integer";
      case FieldType::Number: return "number";
      case FieldType::Flag: return "boolean";
      case FieldType::Texts: return "array";
      case FieldType::Text:
      case FieldType::Choice:
      case FieldType::Size: return "string";
    }
    return "string";
  };
  for (const Field& field : request_fields())
    if (is_plain_field(field)) members.push_back({field.name, type_of(field), field.help, field.choices});
  for (const auto& [name, member] : special_members()) members.push_back({name, member.type, member.help});
  return members;
}

std::string stored_image(const std::string& text, const std::string& kind, AssetStore& assets, const AppContext& context,
                         const std::string& param) {
  const auto wrong = [&](const std::string& why) { return HttpError(400, "invalid_image_file", param + ": " + why, param); };
  if (text.starts_with("asset:")) {
    const std::string id = asset_id_of(text);
    const auto asset = is_id(id) ? assets.get(id) : std::nullopt;
    if (!asset || asset->missing) throw wrong("asset " + printable(text.substr(6)) + " not found");
    return "asset:" + id;
  }
  if (text.starts_with("http://") || text.starts_with("https://")) {
    const AssetStore::Fetch fetch = assets.fetch();
    if (!fetch) throw wrong("this server does not fetch images from addresses; send the image itself");
    try {
      return "asset:" + assets.put(fetch(text), {.kind = kind}).id;
    } catch (const Error& e) {
      throw wrong(e.what());
    }
  }
  std::string_view encoded = text;
  if (encoded.starts_with("data:")) {
    const size_t comma = encoded.find(',');
    if (comma == encoded.npos || encoded.substr(0, comma).find(";base64") == encoded.npos)
      throw wrong("the data URL is not base64");
    encoded.remove_prefix(comma + 1);
  }
  try {
    if (encoded.size() / 4 * 3 > context.limits.image.file_bytes) throw wrong("the image is too large");
    return "asset:" + assets.put(base64_decode(encoded), {.kind = kind}).id;
  } catch (const Error& e) {
    throw wrong(e.code() == ErrorCode::InvalidArgument || e.code() == ErrorCode::BadFile
                    ? std::string("the image cannot be read: ") + e.what()
                    : e.what());
  }
}

Json check_job_request(const Json& request, const std::string& kind, AssetStore& assets, const AppContext& context,
                       std::vector<std::string>& warnings) {
  if (!request.is_object()) throw HttpError(400, "invalid_request", "the request must be a JSON object");
  std::vector<HttpError::FieldProblem> problems;
  Json checked = in_our_words(request, warnings);
  if (!checked.contains("kind")) checked["kind"] = kind;
  const StudioResolution resolution = resolve_in_studio(checked, assets, problems);
  RequestSpec spec;
  for (const auto& [key, value] : checked.items()) {
    if (key == kResolution && !request.contains(kResolution)) continue;
    try {
      if (const auto texts = field_texts(key, value))
        set_value(spec, field(texts->field), parse_value(field(texts->field), texts->texts, key));
      if (key == "regions") spec.region = region_texts(value);
    } catch (const Error& e) {
      std::string message = e.what();
      if (message.starts_with(key + ": ")) message.erase(0, key.size() + 2);
      problems.push_back({printable(key), message});
    }
  }
  if (!is_image_kind(kind)) problems.push_back({"kind", "\"" + printable(kind) + "\" is not generate, edit or inpaint"});
  if (!checked.contains("prompt")) problems.push_back({"prompt", "is missing"});
  require_images(checked, kind, resolution.found.has_images(), problems);
  if (problems.empty()) try {
      check_request_limits(spec, context.limits);
      if (checked.contains("references"))
        check_limit("references", checked["references"].size(), static_cast<uint64_t>(context.limits.request.references),
                    "the request has {} reference images", ErrorCode::InvalidArgument);
      if (checked.contains("image_prompts"))
        check_limit("references", checked["image_prompts"].size(), static_cast<uint64_t>(context.limits.request.references),
                    "the request has {} image prompts", ErrorCode::InvalidArgument);
      if (checked.contains("regions")) {
        uint64_t images = 0;
        for_region_images(checked["regions"], [&](Json&, const char*, const std::string&) { ++images; });
        check_limit("references", images, 2 * static_cast<uint64_t>(context.limits.request.references),
                    "the regions of the request have {} images", ErrorCode::InvalidArgument);
      }
    } catch (const Error& e) {
      problems.push_back({"", e.what()});
    }
  if (!problems.empty()) {
    std::vector<std::string> lines;
    for (const auto& problem : problems)
      lines.push_back(problem.path.empty() ? problem.message : problem.path + ": " + problem.message);
    HttpError error(400, "invalid_request", fmt::format("{}", fmt::join(lines, "; ")), problems.front().path);
    error.fields = std::move(problems);
    throw error;
  }
  // Only now, when nothing else is wrong, is anything stored.
  if (checked.contains("references"))
    for (size_t i = 0; i < checked["references"].size(); ++i) {
      Json& image = checked["references"][i];
      image = stored_image(image.get<std::string>(), "reference", assets, context, fmt::format("references[{}]", i));
    }
  if (checked.contains("regions"))
    for_region_images(checked["regions"], [&](Json& image, const char* what, const std::string& where) {
      image = stored_image(image.get<std::string>(), what, assets, context, where);
    });
  if (checked.contains("image_prompts"))
    for (size_t i = 0; i < checked["image_prompts"].size(); ++i) {
      Json& image = checked["image_prompts"][i]["image"];
      image = stored_image(image.get<std::string>(), "reference", assets, context, fmt::format("image_prompts[{}].image", i));
    }
  for (const auto& [member, what] : kImages)
    if (checked.contains(member))
      checked[member] = stored_image(checked[member].get<std::string>(), what, assets, context, member);
  finish_in_studio(checked, resolution, assets, context.limits.request, warnings);
  if (spec.seed.value_or(-1) < 0) checked["seed"] = random_seed();
  return checked;
}

SettingLayer settings_of_job(const Json& request, const AssetStore& assets, const AppContext& context) {
  SettingLayer layer;
  const auto path_of = [&](const Json& image) {
    const auto asset = assets.get(asset_id_of(image.get<std::string>()));
    if (!asset) fail(ErrorCode::NotFound, "the image {} of this job was deleted", image.get<std::string>());
    return assets.path_of(*asset).string();
  };
  for (const auto& [key, value] : request.items())
    if (key == kResolution) continue;
    else if (auto texts = field_texts(key, value)) {
      std::string name = texts->field;
      std::replace(name.begin(), name.end(), '_', '-');
      layer[name] = {std::move(texts->texts), key};
      if (name == "model") layer[name].names_only = true;
    }
  std::vector<std::string> input, adapters;
  if (request.contains("canvas")) input.push_back(path_of(request["canvas"]));
  if (request.contains("references"))
    for (const Json& image : request["references"]) input.push_back(path_of(image));
  if (!input.empty()) layer["input"] = {input, "references"};
  if (request.contains("regions")) {
    const Json& regions = request["regions"];
    layer["region"] = {region_texts(regions), "regions"};
    std::vector<std::string> masks, references;
    for (size_t r = 0; r < regions.size(); ++r) {
      const Json& region = regions[r];
      if (region.contains("mask") && region["mask"].is_string()) masks.push_back(path_of(region["mask"]));
      if (region.contains("references") && region["references"].is_array())
        for (const Json& image : region["references"]) references.push_back(fmt::format("{}:{}", r + 1, path_of(image)));
    }
    if (!masks.empty()) layer["region-mask"] = {masks, "regions"};
    if (!references.empty()) layer["region-reference"] = {references, "regions"};
  }
  if (request.contains("image_prompts")) {
    std::vector<std::string> prompts;
    for (const Json& one : request["image_prompts"]) prompts.push_back(image_prompt_of(one, path_of(one["image"])).text());
    layer["image-prompt"] = {prompts, "image_prompts"};
  }
  if (const char* member = "image_prompt_adapter"; request.contains(member))
    layer["image-prompt-adapter"] = {{image_prompt_adapter_setting(request[member].get<std::string>(), assets, context)}, member};
  if (const char* member = "image_prompt_encoder"; request.contains(member))
    layer["image-prompt-encoder"] = {
        {registered_image_prompt_part(ImagePromptPart::Encoder, request[member].get<std::string>(), member, context).string()},
        member};
  if (request.contains("mask")) layer["mask"] = {{path_of(request["mask"])}, "mask"};
  if (request.contains("mask_from_diff")) layer["mask-from-diff"] = {{path_of(request["mask_from_diff"])}, "mask_from_diff"};
  if (request.contains("detail_mask")) layer["detail-mask"] = {{path_of(request["detail_mask"])}, "detail_mask"};
  if (request.contains("loras"))
    for (const Json& one : request["loras"]) adapters.push_back(adapter_setting(adapter_text(one), assets, context));
  if (!adapters.empty()) layer["lora"] = {adapters, "loras"};
  return layer;
}

Json job_request_of(const RequestSpec& spec, const std::string& kind,
                    const std::function<std::string(const std::string& path)>& image, std::vector<std::string>& left_out) {
  static const std::map<std::string, std::string> renamed = {
      {"batch", "count"}, {"format", "output_format"}, {"quality", "output_quality"}};
  // What the client itself does with the result, and lists that follow below.
  static const std::vector<std::string> local = {"output",      "preview_file", "input",  "mask",        "mask_from_diff",
                                                 "mask_points", "mask_service", "lora",   "detail_mask", "repeat",
                                                 "sidecar",     "output_type",  "region", "region_mask", "region_reference",
                                                 "image_prompt"};
  Json request = {{"kind", kind}};
  for (const Field& field : request_fields()) {
    const auto value = get_value(spec, field);
    if (!value || std::find(local.begin(), local.end(), field.name) != local.end()) continue;
    const auto found = renamed.find(field.name);
    const std::string name = found == renamed.end() ? field.name : found->second;
    if (special_members().contains(name) || is_plain_field(field)) request[name] = value_to_json(*value);
    else if (spec.is_asked(field.name)) left_out.push_back(field.name);
  }
  if (spec.input)
    for (size_t i = 0; i < spec.input->size(); ++i) {
      if (kind == "inpaint" && i == 0) request["canvas"] = image((*spec.input)[i]);
      else request["references"].push_back(image((*spec.input)[i]));
    }
  if (spec.region) {
    Json regions = Json::array();
    const std::vector<std::string> masks = spec.region_mask.value_or(std::vector<std::string>{});
    size_t used_masks = 0;
    for (const std::string& text : *spec.region) {
      const RegionText region = parse_region(text);
      Json one = {{"prompt", region.prompt}};
      if (region.box) one["box"] = {region.box->x, region.box->y, region.box->width, region.box->height};
      else if (used_masks < masks.size()) one["mask"] = image(masks[used_masks++]);
      regions.push_back(std::move(one));
    }
    for (const std::string& text : spec.region_reference.value_or(std::vector<std::string>{})) {
      const RegionFile file = parse_region_file(text);
      check(file.region <= regions.size(), "{}: there are {} regions, not {}", spec.origin("region_reference"), regions.size(),
            file.region);
      regions[file.region - 1]["references"].push_back(image(file.file));
    }
    request["regions"] = std::move(regions);
  }
  for (const std::string& text : spec.image_prompt.value_or(std::vector<std::string>{})) {
    const ImagePromptText prompt = parse_image_prompt(text);
    Json one = {{"image", image(prompt.file)}, {"strength", prompt.strength}};
    if (prompt.from != 0) one["from"] = prompt.from;
    if (prompt.to != 1) one["to"] = prompt.to;
    request["image_prompts"].push_back(std::move(one));
  }
  if (spec.mask) request["mask"] = image(*spec.mask);
  if (spec.mask_points)
    for (const std::string& text : *spec.mask_points) {
      const MaskPoint point = parse_mask_point(text);
      request["mask_points"].push_back({point.x, point.y, point.include ? 1 : 0});
    }
  if (spec.mask_from_diff) request["mask_from_diff"] = image(*spec.mask_from_diff);
  if (spec.detail_mask) request["detail_mask"] = image(*spec.detail_mask);
  if (spec.lora)
    for (const std::string& adapter : *spec.lora) request["loras"].push_back(adapter);
  return request;
}

}  // namespace flux2
