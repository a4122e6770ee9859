#include "train/log/train_state.h"

#include <cmath>

#include "base/error.h"

namespace flux2 {

namespace {

// JSON has no infinities.
Json exact_number(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

double exact_number_from(const Json& json, const char* key) {
  if (json.is_number()) return json.get<double>();
  const std::string text = json.is_string() ? json.get<std::string>() : "";
  if (text == "inf") return HUGE_VAL;
  if (text == "-inf") return -HUGE_VAL;
  if (text == "nan") return std::nan("");
  fail(ErrorCode::BadFile, "\"{}\" is not a number", key);
}

const Json& member(const Json& object, const char* key) {
  if (!object.is_object() || !object.contains(key)) fail(ErrorCode::BadFile, "\"{}\" is missing", key);
  return object[key];
}

const Json& object_member(const Json& object, const char* key) {
  const Json& found = member(object, key);
  if (!found.is_object()) fail(ErrorCode::BadFile, "\"{}\" is not an object", key);
  return found;
}

int64_t counter_member(const Json& object, const char* key) {
  int64_t value = -1;
  member(object, key);
  read_member(object, key, value);
  if (value < 0) fail(ErrorCode::BadFile, "\"{}\" is not a count", key);
  return value;
}

std::string text_member(const Json& object, const char* key) {
  std::string text;
  member(object, key);
  read_member(object, key, text);
  return text;
}

TrainState::Optimizer optimizer_from(const Json& json) {
  TrainState::Optimizer optimizer;
  optimizer.name = text_member(json, "name");
  optimizer.args = member(json, "args");
  optimizer.step = counter_member(json, "step");
  for (const auto& [key, value] : object_member(json, "scalars").items())
    optimizer.scalars[key] = exact_number_from(value, key.c_str());
  return optimizer;
}

}  // namespace

Json to_json(const TrainState& s) {
  Json json;
  json["version"] = TrainState::kVersion;
  json["program"] = s.program;
  json["step"] = s.step;
  json["epoch"] = s.epoch;
  json["micro_in_epoch"] = s.micro_in_epoch;
  json["samples_seen"] = s.samples_seen;
  json["ranks"] = s.ranks;
  json["seed"] = s.seed;
  json["options"] = s.options;
  json["dataset_hash"] = s.dataset_hash;
  json["base"] = s.base;
  json["scheduler"] = {{"name", s.scheduler.name}, {"step", s.scheduler.step}};
  json["scaler"] = s.scaler ? Json{{"scale", exact_number(s.scaler->scale)}, {"good_steps", s.scaler->good_steps}} : Json();
  Json& optimizer = json["optimizer"];
  optimizer["name"] = s.optimizer.name;
  optimizer["args"] = s.optimizer.args;
  optimizer["step"] = s.optimizer.step;
  optimizer["scalars"] = Json::object();
  for (const auto& [key, value] : s.optimizer.scalars) optimizer["scalars"][key] = exact_number(value);
  json["loss_window"] = Json::array();
  for (const double loss : s.loss_window) json["loss_window"].push_back(exact_number(loss));
  json["elapsed_s"] = s.elapsed_s;
  json["saved_at"] = s.saved_at;
  json["extra"] = s.extra;
  return json;
}

TrainState train_state_from(const Json& json) {
  if (const int64_t version = counter_member(json, "version"); version != TrainState::kVersion)
    throw Error(ErrorCode::Incompatible,
                fmt::format("the state has version {}; this program knows version {}", version, TrainState::kVersion),
                "resume with the program that wrote it");
  TrainState s;
  s.program = text_member(json, "program");
  s.step = counter_member(json, "step");
  s.epoch = counter_member(json, "epoch");
  s.micro_in_epoch = counter_member(json, "micro_in_epoch");
  s.samples_seen = counter_member(json, "samples_seen");
  const Json& seed = member(json, "seed");
  if (!seed.is_number_unsigned()) fail(ErrorCode::BadFile, "\"seed\" is not a seed");
  s.seed = seed.get<uint64_t>();
  s.options = object_member(json, "options");
  s.dataset_hash = text_member(json, "dataset_hash");
  if (json.contains("ranks")) s.ranks = counter_member(json, "ranks");  // older programs wrote neither of these two
  else s.ranks = 0;
  if (s.ranks < 0 || s.ranks > 1 << 20 || s.micro_in_epoch > int64_t{1} << 40)
    fail(ErrorCode::BadFile, "\"ranks\" or \"micro_in_epoch\" is not possible");
  if (json.contains("base") && json["base"].is_object()) s.base = json["base"];
  const Json& scheduler = object_member(json, "scheduler");
  s.scheduler = {text_member(scheduler, "name"), counter_member(scheduler, "step")};
  if (const Json& scaler = member(json, "scaler"); !scaler.is_null())
    s.scaler = TrainState::Scaler{exact_number_from(member(scaler, "scale"), "scale"), counter_member(scaler, "good_steps")};
  s.optimizer = optimizer_from(object_member(json, "optimizer"));
  const Json& losses = member(json, "loss_window");
  if (!losses.is_array()) fail(ErrorCode::BadFile, "\"loss_window\" is not a list");
  for (const Json& loss : losses) s.loss_window.push_back(exact_number_from(loss, "loss_window"));
  read_member(json, "elapsed_s", s.elapsed_s);
  s.saved_at = text_member(json, "saved_at");
  if (json.contains("extra")) s.extra = json["extra"];
  return s;
}

}  // namespace flux2
