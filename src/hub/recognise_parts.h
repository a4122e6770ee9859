#pragma once

#include <memory>
#include <optional>

#include "hub/recognise.h"
#include "weights/weight_source.h"

namespace flux2 {

// Each finds its kind of component among the tensors of one source, or nothing. `path` and sizes are filled by the
// caller where `prefix` tells which tensors belong to it.
using SharedSource = std::shared_ptr<const WeightSource>;
std::optional<Component> recognise_transformer(const SharedSource& source);
std::optional<Component> recognise_autoencoder(const SharedSource& source);
std::optional<Component> recognise_text_encoder(const SharedSource& source);
std::optional<Component> recognise_adapter(const SharedSource& source);
std::optional<Component> recognise_upscaler(const WeightSource& source);
std::optional<Component> recognise_classifier(const WeightSource& source);
std::optional<Component> recognise_image_encoder(const WeightSource& source);
std::optional<Component> recognise_image_prompt(const WeightSource& source);

// A diffusion model of another family.
std::optional<Component> recognise_foreign_model(const WeightSource& source);

// Weights of any model, quantised in a way this program does not read.
std::optional<Component> recognise_foreign_quantisation(const WeightSource& source);

}  // namespace flux2
