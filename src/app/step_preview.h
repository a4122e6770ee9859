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

// A preview before it has the size at which it is shown. Enlarging it takes longer than making it and needs no device, so that
// any thread may do it.
struct SmallPreview {
  Image image;
  int width = 0, height = 0;  // of the picture

  Image fitted() const;  // at most 512 pixels a side
};

// Creates a preview after each step, as an image and, if the request names one, as a file.
class StepPreview {
 public:
  // The session must outlive it. Previews come from the tiny decoder, else they are linear with these colours, else they are
  // decoded in full.
  StepPreview(const RequestSpec& spec, ModelSession& session, std::shared_ptr<const TinyDecoder> tiny,
              std::shared_ptr<const LatentColours> colours);

  SmallPreview step_done(const StepDone& step);

 private:
  ModelSession& session_;
  std::shared_ptr<const TinyDecoder> tiny_;
  std::shared_ptr<const LatentColours> colours_;
  std::filesystem::path file_;
};

}  // namespace flux2
