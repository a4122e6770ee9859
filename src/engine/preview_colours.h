#pragma once

#include <filesystem>

#include "engine/engine.h"
#include "pipeline/preview.h"

namespace flux2 {

// The result of fit_latent_colours for a model's autoencoder, cached by the hash of its file in the folder `cache` (empty: not
// cached).
LatentColours latent_colours(ModelSession& session, const std::filesystem::path& cache);

}  // namespace flux2
