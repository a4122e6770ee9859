#pragma once

#include <string>
#include <vector>

#include "hub/recognise.h"
#include "hub/registry/model_record.h"

namespace flux2 {

// A part as it would be registered, and what that rests on. The record has no key yet; its name is a suggestion.
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

// Every part that was recognised, a transformer first. The role folder it lies in (diffusion_models, vae, loras, …) names what
// the tensors do not tell; a published file in a hub cache is known by its hash.
std::vector<Described> describe(const Recognition& recognition);

// What lies at the path; a file that is damaged, or no model at all, is described as such instead of being refused. Throws
// NotFound when nothing is there.
std::vector<Described> identify(const std::filesystem::path& path, const Log& log = {});

// The first sign of why one of them cannot be used, as an error; nothing happens when all can.
void require_usable(const std::vector<Described>& parts, const std::filesystem::path& path);

// Fills in what the hash of a published file tells: variant, training, licence. Changes nothing for other files.
void use_known_hash(ModelRecord& record);

// A name that can be registered, from any text.
std::string name_from(std::string text);

}  // namespace flux2
