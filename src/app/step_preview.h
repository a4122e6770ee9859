#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "engine/engine.h"
#include "image/image.h"
#include "pipeline/preview.h"
#include "record/request_spec.h"

namespace flux2 {

struct AppContext;

// The file of the tiny autoencoder that previews use: a registered one, if the request does not say otherwise and the model's own
// autoencoder is one of FLUX.2. Empty: none. Throws NotFound if the request asks for one and none is registered.
std::filesystem::path tiny_decoder_file(const RequestSpec& spec, const VaeConfig& vae, const AppContext& context);

// Creates a preview after each step, as an image and, if the request names one, as a file.
class StepPreview {
 public:
  // The session must outlive it. `cache` is a folder; if empty, nothing is cached. Without a tiny decoder, previews are linear,
  // unless the request wants them decoded in full.
  StepPreview(const RequestSpec& spec, ModelSession& session, const std::filesystem::path& cache,
              std::shared_ptr<const TinyDecoder> tiny = nullptr);

  // The preview, at most 512 pixels a side.
  Image step_done(const StepDone& step);

 private:
  ModelSession& session_;
  bool full_;
  std::shared_ptr<const TinyDecoder> tiny_;
  std::optional<LatentColours> colours_;
  std::filesystem::path file_;
};

}  // namespace flux2
