#pragma once

#include <filesystem>
#include <memory>

#include "base/log.h"
#include "model/adapters.h"

namespace flux2 {

// An adapter file (LoRA and relatives) to apply to a transformer.
struct AdapterChoice {
  std::filesystem::path path;
  double strength = 1.0;
  std::string layers = {};  // which of them, as Adapter takes it; empty: all

  bool operator==(const AdapterChoice&) const = default;
};

// Opens it and holds it against the model, before anything large is read. Throws when it is no adapter, was made for another
// model, or changes nothing there; warns of layers that have no place and of strengths nobody means.
std::shared_ptr<const Adapter> open_adapter(const AdapterChoice& choice, const Flux2Config& config, const Log& log);

}  // namespace flux2
