#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "app/context.h"
#include "base/system_memory.h"
#include "server/api/model_catalog.h"
#include "server/jobs/job_queue.h"

namespace flux2 {

class MaskService;
class UpscaleService;

// What every family of routes needs. It must outlive the listener and the workers.
struct ApiContext {
  const AppContext& app;
  JobQueue& queue;
  ModelCatalog& models;

  std::string default_model = {};  // of requests that name none; empty: the default of `models`
  std::function<std::string()> loaded_model = [] { return std::string(); };  // the model that was used last; empty: none
  std::function<bool(const std::string&)> is_loaded = [](const std::string&) { return false; };  // by name or path
  std::function<bool()> is_loading = [] { return false; };
  std::function<void(const std::string&)> load_model = {};  // starts loading and returns at once; empty: not possible
  std::function<void()> unload_model = {};                  // unloads the model; empty: not possible
  std::function<MemorySize()> device_memory = {};           // of the GPU; empty: there is none

  const MaskService* masks = nullptr;  // null: there is none
  UpscaleService* upscales = nullptr;  // the same

  std::string base_url = {};  // "http://127.0.0.1:8190": for answers to clients that send no Host
  bool is_tls = false;

  // Settings that may change while requests run (native_settings.h).
  std::atomic<bool> cancel_on_disconnect = true;  // a client that waits for its job and disconnects cancels it
  enum class UrlFetch { Off, Https, Http };       // whether requests may name images by their address
  std::atomic<UrlFetch> url_fetch = UrlFetch::Off;
  // openai.alias-openai-models: whether names of OpenAI's own models mean the default model.
  std::atomic<bool> alias_openai_models = true;
  // sdapi.img2img: what img2img without a mask does.
  enum class Img2Img { Edit, Strength };
  std::atomic<Img2Img> sdapi_img2img = Img2Img::Edit;
  std::atomic<int64_t> sdapi_distilled_step_cap = 8;
};

}  // namespace flux2
