#include "app/model_keeper.h"

#include <algorithm>
#include <limits>

#include "engine/forecast.h"
#include "record/field_values.h"
#include "record/request_fields.h"

namespace flux2 {

namespace {

// The settings that require another engine or a reload of the transformer.
std::string engine_key_of(const RequestSpec& spec, const ModelFiles& model) {
  std::string key = model.transformer.string() + "\n";
  for (const Field& f : request_fields())
    if (f.loads_model) {
      const auto value = get_value(spec, f);
      key += (value ? print_value(*value).front() : "") + "\n";
    }
  return key + (spec.latent_path ? "autoencoder only" : spec.embeddings ? "no text encoder" : "");
}

// Whether the model runs as it would alone: nothing is unloaded, streamed or cut into tiles because others take memory.
bool has_room(const Forecast& forecast, Offload offload) {
  const Placement& placement = forecast.placement;
  const bool host = forecast.device.starts_with("cpu");
  if (!forecast.fits() || placement.tiles) return false;
  return host || offload != Offload::Auto || !placement.encoder_leaves;
}

}  // namespace

std::string ModelKeeper::key_of(const RequestSpec& spec, const ModelFiles& model) {
  std::string key = engine_key_of(spec, model);
  for (const auto* path : {&model.vae, &model.text_encoder, &model.tokenizer}) key += "\n" + path->string();
  return key;
}

bool ModelKeeper::has(const RequestSpec& spec, const ModelFiles& model) const {
  const std::string engine_key = engine_key_of(spec, model);
  return std::any_of(models_.begin(), models_.end(), [&](const Kept& kept) { return kept.engine_key == engine_key; });
}

PictureMaker* ModelKeeper::maker() const { return models_.empty() ? nullptr : models_.back().maker.get(); }

std::vector<const PictureMaker*> ModelKeeper::makers() const {
  std::vector<const PictureMaker*> makers;
  for (const Kept& kept : models_) makers.push_back(kept.maker.get());
  return makers;
}

int64_t ModelKeeper::held_bytes() const {
  int64_t bytes = 0;
  for (const Kept& kept : models_) bytes += kept.maker->held_bytes();
  return bytes;
}

bool ModelKeeper::has_room_for(const RequestSpec& spec, const ModelFiles& model,
                               std::span<const ResolvedRequest> requests) const {
  EngineOptions options = engine_options(spec, context_);
  options.log = {};  // the engine that computes the image warns
  if (options.memory_limit > 0) {
    options.memory_limit -= held_bytes();
    if (options.memory_limit <= 0) return false;
  }
  Request request;  // where none is known yet: the usual size
  request.width = model.defaults.width;
  request.height = model.defaults.height;
  if (!requests.empty()) {
    request = requests.front().request;
    options.adapters = requests.front().adapters;
  }
  const Engine engine(options);
  return has_room(forecast_memory(engine, model, request), options.offload);
}

bool ModelKeeper::evict_oldest(const PictureMaker* except) {
  const auto oldest = std::find_if(models_.begin(), models_.end(), [&](const Kept& kept) { return kept.maker.get() != except; });
  if (oldest == models_.end()) return false;
  context_.log.info("{} is unloaded to make room", oldest->maker->files().id);
  models_.erase(oldest);
  ++evicted_;
  return true;
}

PictureMaker& ModelKeeper::load(const RequestSpec& spec, const ModelFiles& model, std::span<const ResolvedRequest> requests,
                                const Progress& progress) {
  auto maker = std::make_unique<PictureMaker>(context_, model, spec);
  maker->set_taken_elsewhere(held_bytes());
  maker->set_memory_relief([this, self = maker.get()] {
    bool freed = false;
    while (evict_oldest(self)) freed = true;
    return freed;
  });
  maker->load(requests, progress);
  models_.push_back({key_of(spec, model), engine_key_of(spec, model), std::move(maker)});
  return *models_.back().maker;
}

PictureMaker& ModelKeeper::maker_for(const RequestSpec& spec, const ModelFiles& model, std::span<const ResolvedRequest> requests,
                                     const Progress& progress) {
  const std::string key = key_of(spec, model), engine_key = engine_key_of(spec, model);
  // One whose load failed half-way is of no use.
  std::erase_if(models_, [](const Kept& kept) { return !kept.maker->is_loaded(); });
  auto found = std::find_if(models_.begin(), models_.end(), [&](const Kept& kept) { return kept.key == key; });
  if (found == models_.end())
    found = std::find_if(models_.begin(), models_.end(), [&](const Kept& kept) { return kept.engine_key == engine_key; });
  if (found != models_.end()) {
    models_.splice(models_.end(), models_, found);
    Kept& kept = models_.back();
    if (kept.key != key) {
      kept.maker->change_files(model, requests, progress);
      kept.key = key;
      return *kept.maker;
    }
    try {
      kept.maker->make_room_for(requests, progress);
      kept.maker->expect(requests);
      return *kept.maker;
    } catch (const Error& e) {  // it is loaded again, after other models have left
      if (e.code() != ErrorCode::OutOfMemory) throw;
      models_.pop_back();
    }
  }
  while (models_.size() >= std::max<size_t>(1, most_)) evict_oldest();
  while (!models_.empty() && !has_room_for(spec, model, requests)) evict_oldest();
  while (true) {
    try {
      return load(spec, model, requests, progress);
    } catch (const Error& e) {  // the forecast was too hopeful
      if (e.code() != ErrorCode::OutOfMemory || !evict_oldest()) throw;
    }
  }
}

bool ModelKeeper::make_room(const RequestSpec& spec, int64_t bytes) {
  if (models_.empty()) return false;
  EngineOptions options = engine_options(spec, context_);
  options.log = {};
  const Engine engine(options);
  // On a CPU without a limit, mapped weights leave memory when something else needs it.
  const auto is_free = [&] {
    if (options.memory_limit > 0) return options.memory_limit - held_bytes();
    return engine.device().is_host() ? std::numeric_limits<int64_t>::max() : engine.device().memory().available;
  };
  bool freed = false;
  while (is_free() < bytes && evict_oldest()) freed = true;
  return freed;
}

void ModelKeeper::drop() { models_.clear(); }

void ModelKeeper::drop_file(const std::filesystem::path& transformer) {
  std::erase_if(models_, [&](const Kept& kept) { return kept.maker->files().transformer == transformer; });
}

}  // namespace flux2
