#include "record/picture_metadata.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "record/a1111_text.h"
#include "record/comfy_graph.h"
#include "record/field_values.h"
#include "record/request_fields.h"
#include "record/xmp.h"

namespace flux2 {

namespace {

std::string compact(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

// Foreign JSON that is damaged is no reason to fail: the picture just says nothing about itself.
template <class F>
std::optional<FoundRecord> if_readable(F&& read) {
  try {
    return read();
  } catch (const Error&) {
    return std::nullopt;
  }
}

FoundRecord from_own(const std::string& text, const JsonLimits& limits) {
  Json json = parse_json(text, limits);
  GenerationRecord record = record_from_json(json);
  return {"flux2", std::move(record), std::move(json)};
}

FoundRecord from_invokeai(const std::string& text, const JsonLimits& limits) {
  const Json json = parse_json(text, limits);
  GenerationRecord r;
  read_member(json, "app_version", r.app);
  std::string prompt, negative, scheduler;
  read_member(json, "positive_prompt", prompt);
  read_member(json, "negative_prompt", negative);
  r.request.prompt = prompt;
  r.request.negative = negative;
  for (const char* name : {"seed", "steps", "width", "height"})
    if (const auto found = json.find(name); found != json.end() && !found->is_null())
      set_value(r.request, field(name), value_from_json(field(name), *found, name));
  if (json.contains("cfg_scale") && json["cfg_scale"].is_number()) r.request.cfg = json["cfg_scale"].get<double>();
  if (json.contains("model") && json["model"].is_object()) read_member(json["model"], "name", r.model);
  read_member(json, "scheduler", scheduler);
  if (!scheduler.empty()) r.request.sampler = scheduler;
  return {"invokeai", std::move(r), nullptr};
}

}  // namespace

MetadataChoice MetadataChoice::parse(const std::string& list) {
  MetadataChoice choice{.a1111 = false, .json = false};
  size_t start = 0;
  while (start <= list.size()) {
    const size_t end = std::min(list.find(',', start), list.size());
    const std::string item = list.substr(start, end - start);
    if (item == "a1111") choice.a1111 = true;
    else if (item == "json") choice.json = true;
    else if (item == "comfy") choice.comfy = true;
    else
      check(item == "none" && start == 0 && end == list.size(),
            "metadata \"{}\" is neither a list of a1111, json and comfy, nor none", list);
    start = end + 1;
  }
  return choice;
}

ImageMetadata picture_metadata(const GenerationRecord& record, const MetadataChoice& choice, ImageFormat format) {
  const std::string parameters = choice.a1111 ? to_a1111(record, choice.is_private) : "";
  const std::string own = choice.json ? compact(to_json(record, choice.is_private)) : "";
  const bool composite = record.kind != "generate";
  const bool anything = choice.a1111 || choice.json || choice.comfy;
  ImageMetadata metadata;
  if (format == ImageFormat::Png) {
    if (choice.a1111) metadata.text.emplace_back("parameters", parameters);
    if (choice.json) metadata.text.emplace_back("flux2", own);
    if (choice.comfy && !choice.is_private) {
      const ComfyGraphs graphs = comfy_graphs(record);
      metadata.text.emplace_back("prompt", compact(graphs.api));
      metadata.text.emplace_back("workflow", compact(graphs.ui));
    }
    if (anything) metadata.text.emplace_back("Software", record.app);
    if (choice.provenance) metadata.xmp = xmp_packet({.generated = true, .composite = composite});
  } else {
    metadata.exif_comment = parameters;
    if (anything) metadata.software = record.app;
    if (choice.provenance || choice.json)
      metadata.xmp = xmp_packet({.generated = choice.provenance, .composite = composite, .own_json = own});
  }
  return metadata;
}

ImageMetadata copied_metadata(ImageMetadata metadata, const MetadataChoice& choice, ImageFormat format) {
  if (choice.is_private || !(choice.a1111 || choice.json || choice.comfy)) {
    ImageMetadata mark;
    if (choice.provenance && says_generated(metadata.xmp))
      mark.xmp = xmp_packet({.composite = metadata.xmp.find("compositeWith") != std::string::npos});
    return mark;
  }
  const auto parameters =
      std::find_if(metadata.text.begin(), metadata.text.end(), [](const auto& t) { return t.first == "parameters"; });
  const bool has_text = parameters != metadata.text.end();
  const bool has_comment = metadata.exif_comment.find("Steps: ") != std::string::npos;  // other comments are not A1111's
  if (!choice.a1111) {
    if (has_comment) metadata.exif_comment.clear();
    if (has_text) metadata.text.erase(parameters);
  } else if (format != ImageFormat::Png) {
    if (has_text && metadata.exif_comment.empty()) metadata.exif_comment = parameters->second;
  } else if (has_comment && !has_text) {
    metadata.text.emplace_back("parameters", std::exchange(metadata.exif_comment, {}));
  }
  return metadata;
}

std::optional<FoundRecord> find_record(const ImageMetadata& metadata, const JsonLimits& limits) {
  std::optional<FoundRecord> found;
  if (const std::string* own = metadata.find_text("flux2")) found = if_readable([&] { return from_own(*own, limits); });
  if (!found)
    if (const std::string own = own_json_of_xmp(metadata.xmp); !own.empty())
      found = if_readable([&] { return from_own(own, limits); });
  if (!found)
    if (const std::string* invoke = metadata.find_text("invokeai_metadata"))
      found = if_readable([&] { return from_invokeai(*invoke, limits); });
  const std::string* parameters = metadata.find_text("parameters");
  if (!parameters && !metadata.exif_comment.empty()) parameters = &metadata.exif_comment;
  if (!found && parameters && !parameters->empty())
    found = FoundRecord{"a1111", record_from_a1111(parse_a1111(*parameters)), nullptr};
  if (!found)
    if (const std::string* graph = metadata.find_text("prompt"))
      found = if_readable([&] { return FoundRecord{"comfyui", record_from_comfy(parse_json(*graph, limits)), nullptr}; });
  return found;
}

}  // namespace flux2
