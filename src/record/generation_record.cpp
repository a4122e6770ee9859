#include "record/generation_record.h"

#include <cmath>

#include "base/error.h"
#include "record/field_values.h"
#include "record/request_fields.h"

namespace flux2 {

namespace {

int64_t milliseconds(double seconds) { return std::llround(seconds * 1000); }

Json to_json(const PictureRecord& picture, bool is_private) {
  Json json = {{"sha256", picture.sha256}, {"width", picture.width}, {"height", picture.height}};
  if (!is_private) json["name"] = picture.name;
  return json;
}

PictureRecord picture_from_json(const Json& json) {
  PictureRecord picture;
  read_member(json, "name", picture.name);
  read_member(json, "sha256", picture.sha256);
  read_member(json, "width", picture.width);
  read_member(json, "height", picture.height);
  return picture;
}

Json to_json(const WeightsRecord& weights, bool is_private) {
  Json json = Json::object();
  if (!is_private) json["name"] = weights.name;
  if (!weights.sha256.empty()) json["sha256"] = weights.sha256;
  return json;
}

void read_weights(const Json& json, const char* key, WeightsRecord& weights) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_object()) return;
  read_member(*found, "name", weights.name);
  read_member(*found, "sha256", weights.sha256);
}

// Where a field lies in the JSON of a record.
struct RecordKey {
  explicit RecordKey(std::string text) : inverted(text.starts_with('!')) {
    if (inverted) text.erase(0, 1);
    const size_t dot = text.find('.');
    if (dot != text.npos) group = text.substr(0, dot), text.erase(0, dot + 1);
    key = std::move(text);
  }
  bool inverted;
  std::string group, key;
};

void write_fields(const RequestSpec& request, bool is_private, Json& json) {
  for (const Field& f : request_fields()) {
    const auto value = get_value(request, f);
    if (f.record_key.empty() || !value || (is_private && f.is_private)) continue;
    const RecordKey at(f.record_key);
    Json written = value_to_json(*value);
    if (at.inverted) written = !written.get<bool>();
    if (f.type == FieldType::Choice && (written == "on" || written == "off")) written = written == "on";
    (at.group.empty() ? json : json[at.group])[at.key] = std::move(written);
  }
}

void read_fields(const Json& json, RequestSpec& request) {
  for (const Field& f : request_fields()) {
    if (f.record_key.empty()) continue;
    const RecordKey at(f.record_key);
    const auto group = at.group.empty() ? json.end() : json.find(at.group);
    if (!at.group.empty() && (group == json.end() || !group->is_object())) continue;
    const Json& from = at.group.empty() ? json : *group;
    const auto found = from.find(at.key);
    if (found == from.end() || found->is_null()) continue;
    FieldValue value = value_from_json(f, *found, at.key);
    if (at.inverted) value = !std::get<bool>(value);
    set_value(request, f, std::move(value));
  }
}

}  // namespace

std::string program_version() { return std::string(kProgramName) + " " + FLUX2_VERSION; }

Json to_json(const GenerationRecord& r, bool is_private) {
  Json json = {{"v", 1}, {"app", r.app}, {"kind", r.kind}};
  if (!is_private)
    json["prompt"] = r.prompt(), json["negative"] = r.request.negative.value_or(""), json["rewritten_prompt"] = nullptr;
  if (!r.rewriting.by.empty()) {
    json["rewriting"] = {{"by", r.rewriting.by}, {"failed", r.rewriting.failed}};
    if (!is_private && !r.rewriting.model.empty()) json["rewriting"]["model"] = r.rewriting.model;
  }
  Json model = Json::object();
  if (!is_private) model["id"] = r.model;
  if (!is_private && !r.model_file.empty()) model["file"] = r.model_file;
  if (!r.model_sha256.empty()) model["sha256"] = r.model_sha256;
  if (!r.quant.empty()) model["quant"] = r.quant;
  json["model"] = std::move(model);
  json["cfg"] = nullptr, json["shift"] = nullptr;  // unless they are set
  json["cache"] = "off";
  json["index"] = r.index;
  write_fields(r.request, is_private, json);
  if (r.step_cache.steps > 0)
    json["step_cache"] = {{"steps", r.step_cache.steps}, {"computed", r.step_cache.computed}, {"error", r.step_cache.error}};
  for (const AdapterRecord& adapter : r.adapters) {
    Json lora = Json::object();
    if (!is_private) lora["name"] = adapter.name;
    if (!adapter.sha256.empty()) lora["sha256"] = adapter.sha256;
    lora["weight"] = adapter.weight;
    if (!adapter.layers.empty()) lora["layers"] = adapter.layers;
    json["loras"].push_back(std::move(lora));
  }
  for (const PictureRecord& reference : r.references) json["references"].push_back(to_json(reference, is_private));
  if (r.canvas) json["canvas"] = to_json(*r.canvas, is_private);
  for (const PictureRecord& mask : r.region_masks) json["region_masks"].push_back(to_json(mask, is_private));
  for (const RegionReferenceRecord& reference : r.region_references) {
    Json picture = to_json(reference.picture, is_private);
    picture["region"] = reference.region;
    json["region_references"].push_back(std::move(picture));
  }
  for (const ImagePromptRecord& prompt : r.image_prompts) {
    Json picture = to_json(prompt.picture, is_private);
    picture["strength"] = prompt.strength;
    if (prompt.from != 0 || prompt.to != 1) picture["from"] = prompt.from, picture["to"] = prompt.to;
    json["image_prompts"].push_back(std::move(picture));
  }
  if (!r.image_prompt_adapter.empty()) json["image_prompt_adapter"] = to_json(r.image_prompt_adapter, is_private);
  if (!r.image_prompt_encoder.empty()) json["image_prompt_encoder"] = to_json(r.image_prompt_encoder, is_private);
  if (!r.mask_sha256.empty()) json["mask"]["sha256"] = r.mask_sha256;
  if (!r.mask_name.empty() && !is_private) json["mask"]["name"] = r.mask_name;
  if (r.mask_difference) json["mask"]["difference"] = to_json(*r.mask_difference, is_private);
  if (r.work_width > 0) json["mask"]["work_width"] = r.work_width, json["mask"]["work_height"] = r.work_height;
  json["device"] = r.device;
  json["time_ms"] = {{"text", milliseconds(r.seconds.text)},
                     {"vae_encode", milliseconds(r.seconds.vae_encode)},
                     {"denoise", milliseconds(r.seconds.denoise)},
                     {"decode", milliseconds(r.seconds.decode)}};
  for (const auto& [key, value] : r.extra.items()) json[key] = value;
  return json;
}

GenerationRecord record_from_json(const Json& json) {
  try {
    GenerationRecord r;
    r.app.clear();
    read_member(json, "app", r.app);
    read_member(json, "kind", r.kind);
    if (const auto model = json.find("model"); model != json.end() && model->is_object()) {
      read_member(*model, "id", r.model);
      read_member(*model, "file", r.model_file);
      read_member(*model, "sha256", r.model_sha256);
      read_member(*model, "quant", r.quant);
    }
    if (const auto rewriting = json.find("rewriting"); rewriting != json.end() && rewriting->is_object()) {
      read_member(*rewriting, "by", r.rewriting.by);
      read_member(*rewriting, "model", r.rewriting.model);
      read_member(*rewriting, "failed", r.rewriting.failed);
    }
    read_member(json, "index", r.index);
    if (const auto cache = json.find("step_cache"); cache != json.end() && cache->is_object()) {
      read_member(*cache, "steps", r.step_cache.steps);
      read_member(*cache, "computed", r.step_cache.computed);
      read_member(*cache, "error", r.step_cache.error);
    }
    read_fields(json, r.request);
    if (const auto loras = json.find("loras"); loras != json.end() && loras->is_array())
      for (const Json& lora : *loras) {
        AdapterRecord& adapter = r.adapters.emplace_back();
        read_member(lora, "name", adapter.name);
        read_member(lora, "sha256", adapter.sha256);
        read_member(lora, "weight", adapter.weight);
        read_member(lora, "layers", adapter.layers);
      }
    if (const auto references = json.find("references"); references != json.end() && references->is_array())
      for (const Json& reference : *references) r.references.push_back(picture_from_json(reference));
    if (const auto canvas = json.find("canvas"); canvas != json.end() && canvas->is_object())
      r.canvas = picture_from_json(*canvas);
    if (const auto masks = json.find("region_masks"); masks != json.end() && masks->is_array())
      for (const Json& mask : *masks) r.region_masks.push_back(picture_from_json(mask));
    if (const auto found = json.find("region_references"); found != json.end() && found->is_array())
      for (const Json& reference : *found) {
        RegionReferenceRecord& added = r.region_references.emplace_back();
        added.picture = picture_from_json(reference);
        read_member(reference, "region", added.region);
      }
    if (const auto found = json.find("image_prompts"); found != json.end() && found->is_array())
      for (const Json& prompt : *found) {
        ImagePromptRecord& added = r.image_prompts.emplace_back();
        added.picture = picture_from_json(prompt);
        read_member(prompt, "strength", added.strength);
        read_member(prompt, "from", added.from);
        read_member(prompt, "to", added.to);
      }
    read_weights(json, "image_prompt_adapter", r.image_prompt_adapter);
    read_weights(json, "image_prompt_encoder", r.image_prompt_encoder);
    if (const auto mask = json.find("mask"); mask != json.end() && mask->is_object()) {
      read_member(*mask, "name", r.mask_name);
      read_member(*mask, "sha256", r.mask_sha256);
      read_member(*mask, "work_width", r.work_width);
      read_member(*mask, "work_height", r.work_height);
      if (const auto other = mask->find("difference"); other != mask->end() && other->is_object())
        r.mask_difference = picture_from_json(*other);
    }
    read_member(json, "device", r.device);
    return r;
  } catch (const Error& e) {
    fail(ErrorCode::BadFile, "the generation settings cannot be read: {}", e.what());
  }
}

}  // namespace flux2
