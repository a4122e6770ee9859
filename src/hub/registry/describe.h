#pragma once

#include <string>
#include <vector>

#include "hub/recognise.h"
#include "hub/registry/model_record.h"

namespace flux2 {

// A part as it would be registered, with the evidence. The record has no key yet; its name is a suggestion.
struct Described {
  ModelRecord record;
  std::string type;        // name of the record's type, or "unknown"
  std::string confidence;  // "certain", "likely", "guess" or "none"
  std::vector<std::string> evidence;
  std::string needs;    // what belongs to it
  std::string problem;  // why it cannot be used; empty when it can
  Hint hint;            // what to do about that
  bool usable() const { return problem.empty(); }
};

// Every part that was recognised, a transformer first. The folder it is in (diffusion_models, vae, loras, …) is used if the
// tensors do not identify it. A published file in a hub cache is identified by its hash.
std::vector<Described> describe(const Recognition& recognition);

// Describes what is at the path. A file that is damaged, or not a model, is described as such; no error is thrown. Throws
// NotFound if nothing is there.
std::vector<Described> identify(const std::filesystem::path& path, const Log& log = {});

// Throws an error with the first reason why one of them cannot be used; does nothing if all can.
void require_usable(const std::vector<Described>& parts, const std::filesystem::path& path);

// Fills in what is known about a published file by its hash: variant, training, licence. Changes nothing for other files.
void use_known_hash(ModelRecord& record);

// A name that can be registered, from any text.
std::string name_from(std::string text);

}  // namespace flux2
