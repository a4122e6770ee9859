#include "record/generation_record.h"

#include <cmath>

#include "base/error.h"

namespace flux2 {

namespace {

Json or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

int64_t milliseconds(double seconds) { return std::llround(seconds * 1000); }

template <class T>
void read(const Json& json, const char* key, T& value) {
  if (const auto found = json.find(key); found != json.end() && !found->is_null()) value = found->get<T>();
}

void read(const Json& json, const char* key, std::optional<double>& value) {
  if (const auto found = json.find(key); found != json.end() && !found->is_null()) value = found->get<double>();
}

Json to_json(const PictureRecord& picture, bool is_private) {
  Json json = {{"sha256", picture.sha256}, {"width", picture.width}, {"height", picture.height}};
  if (!is_private) json["name"] = picture.name;
  return json;
}

Json to_json(const MaskRecord& mask) {
  Json json = {{"grow", mask.grow}, {"feather", mask.feather}};
  if (!mask.sha256.empty()) json["sha256"] = mask.sha256;
  if (!mask.boxes.empty()) json["boxes"] = mask.boxes;
  if (mask.inverted) json["inverted"] = true;
  if (!mask.extended.empty()) json["extended"] = mask.extended;
  if (!mask.aligned) json["aligned"] = false;
  if (mask.mode != "ours") json["mode"] = mask.mode;
  return json;
}

MaskRecord mask_from_json(const Json& json) {
  MaskRecord mask;
  read(json, "sha256", mask.sha256);
  read(json, "boxes", mask.boxes);
  read(json, "inverted", mask.inverted);
  read(json, "extended", mask.extended);
  read(json, "grow", mask.grow);
  read(json, "feather", mask.feather);
  read(json, "aligned", mask.aligned);
  read(json, "mode", mask.mode);
  return mask;
}

PictureRecord picture_from_json(const Json& json) {
  PictureRecord picture;
  read(json, "name", picture.name);
  read(json, "sha256", picture.sha256);
  read(json, "width", picture.width);
  read(json, "height", picture.height);
  return picture;
}

}  // namespace

std::string program_version() { return std::string(kProgramName) + " " + FLUX2_VERSION; }

Json to_json(const GenerationRecord& r, bool is_private) {
  Json json = {{"v", 1}, {"app", r.app}, {"kind", r.kind}};
  if (!is_private) {
    json["prompt"] = r.prompt;
    json["negative"] = r.negative;
    json["rewritten_prompt"] = nullptr;
  }
  Json model = Json::object();
  if (!is_private) model["id"] = r.model;
  if (!r.model_sha256.empty()) model["sha256"] = r.model_sha256;
  if (!r.quant.empty()) model["quant"] = r.quant;
  json["model"] = std::move(model);
  json["width"] = r.width;
  json["height"] = r.height;
  json["steps"] = r.steps;
  json["guidance"] = r.guidance;
  json["cfg"] = or_null(r.cfg);
  json["seed"] = r.seed;
  json["index"] = r.index;
  json["sampler"] = r.sampler;
  json["schedule"] = r.schedule;
  json["shift"] = or_null(r.shift);
  json["noise"] = r.noise;
  json["profile"] = r.profile;
  if (r.time_rounding != "exact") json["time_rounding"] = r.time_rounding;
  json["cache"] = "off";
  for (const AdapterRecord& adapter : r.adapters) {
    Json lora = Json::object();
    if (!is_private) lora["name"] = adapter.name;
    if (!adapter.sha256.empty()) lora["sha256"] = adapter.sha256;
    lora["weight"] = adapter.weight;
    if (!adapter.layers.empty()) lora["layers"] = adapter.layers;
    json["loras"].push_back(std::move(lora));
  }
  if (!r.references.empty()) {
    json["references"] = Json::array();
    for (const PictureRecord& reference : r.references) json["references"].push_back(to_json(reference, is_private));
  }
  if (r.canvas) json["canvas"] = to_json(*r.canvas, is_private);
  if (r.mask) json["mask"] = to_json(*r.mask);
  if (r.ref_kv) json["ref_kv"] = true;
  if (!r.negative_references) json["negative_references"] = false;
  if (r.strength < 1.0) json["strength"] = r.strength;
  if (!r.context) json["context"] = false;
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
    read(json, "app", r.app);
    read(json, "kind", r.kind);
    read(json, "prompt", r.prompt);
    read(json, "negative", r.negative);
    if (const auto model = json.find("model"); model != json.end() && model->is_object()) {
      read(*model, "id", r.model);
      read(*model, "sha256", r.model_sha256);
      read(*model, "quant", r.quant);
    }
    read(json, "width", r.width);
    read(json, "height", r.height);
    read(json, "steps", r.steps);
    read(json, "guidance", r.guidance);
    read(json, "cfg", r.cfg);
    read(json, "seed", r.seed);
    read(json, "index", r.index);
    read(json, "sampler", r.sampler);
    read(json, "schedule", r.schedule);
    read(json, "shift", r.shift);
    read(json, "noise", r.noise);
    read(json, "profile", r.profile);
    read(json, "time_rounding", r.time_rounding);
    if (const auto loras = json.find("loras"); loras != json.end() && loras->is_array())
      for (const Json& lora : *loras) {
        AdapterRecord& adapter = r.adapters.emplace_back();
        read(lora, "name", adapter.name);
        read(lora, "sha256", adapter.sha256);
        read(lora, "weight", adapter.weight);
        read(lora, "layers", adapter.layers);
      }
    if (const auto references = json.find("references"); references != json.end() && references->is_array())
      for (const Json& reference : *references) r.references.push_back(picture_from_json(reference));
    if (const auto canvas = json.find("canvas"); canvas != json.end() && canvas->is_object()) r.canvas = picture_from_json(*canvas);
    if (const auto mask = json.find("mask"); mask != json.end() && mask->is_object()) r.mask = mask_from_json(*mask);
    read(json, "ref_kv", r.ref_kv);
    read(json, "negative_references", r.negative_references);
    read(json, "strength", r.strength);
    read(json, "context", r.context);
    read(json, "device", r.device);
    return r;
  } catch (const Json::exception& e) {
    fail(ErrorCode::BadFile, "generation settings: {}", e.what());
  }
}

}  // namespace flux2
