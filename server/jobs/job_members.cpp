#include "server/jobs/job_members.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/foreign_text.h"
#include "base/text.h"
#include "record/field_values.h"
#include "record/request_fields.h"
#include "server/jobs/json_texts.h"
#include "server/jobs/request_lists.h"

namespace flux2 {

namespace {

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

// A member that has another JSON form than its field, or that has no field.
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
          check_image_prompts(j);
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

}  // namespace

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

bool is_job_member(const std::string& name) {
  if (special_members().contains(name)) return true;
  const Field* field = find_field(name);
  return field && is_plain_field(*field);
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

}  // namespace flux2
