#pragma once

#include <filesystem>

#include "engine/engine.h"
#include "pipeline/preview.h"

namespace flux2 {

// What fit_latent_colours finds for a model's autoencoder, remembered by the hash of its file in `cache`, a folder; empty: not
// at all.
LatentColours latent_colours(ModelSession& session, const std::filesystem::path& cache);

}  // namespace flux2
