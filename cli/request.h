#pragma once

#include <functional>
#include <string>

#include "cli/references.h"
#include "cli/settings.h"
#include "record/generation_record.h"
#include "hub/model_files.h"
#include "hub/adapter_tools.h"
#include "pipeline/request.h"

namespace flux2 {

// What is written of a picture that was made; empty: itself.
using Finish = std::function<Image(const Image& made)>;

// A request with every default filled in, and the record that its pictures will carry.
struct ResolvedRequest {
  Request request;
  GenerationRecord record;
  std::string output;  // where the pictures go, as the user wrote it
  Finish finish = {};
  std::vector<AdapterChoice> adapters = {};  // of the transformer while it makes them
};

// Applies the rules of sizes, seeds and guidance to what was asked for and reads the pictures it names, from `shelf` where
// one is shared between requests. Throws InvalidArgument for what cannot be done.
ResolvedRequest resolve_request(const Settings& settings, const ModelFiles& model, const std::string& prompt,
                                const Log& log, PictureShelf* shelf = nullptr);

// The settings of a record as options, for --from and --remix (without the seed).
SettingLayer layer_of_record(const GenerationRecord& record, bool with_seed, const std::string& origin);

}  // namespace flux2
