#pragma once

#include <filesystem>
#include <string>

#include "app/context.h"
#include "server/store/asset_store.h"

// An image of a job request: "asset:ID", a data URL, base64 or, where the server allows it, an address.
namespace flux2 {

// Stores an image that a request contains, and returns "asset:ID". "asset:ID" is checked and returned unchanged. `param` names
// the field in errors (HttpError 400 `invalid_image_file`).
std::string stored_image(const std::string& text, const std::string& kind, AssetStore& assets, const AppContext& context,
                         const std::string& param);

// The file of an image of a stored request. Throws HttpError 400 `invalid_image_file` if it was deleted since.
std::filesystem::path file_of_image(const std::string& text, const AssetStore& assets);

// The id in "asset:ID", without the prefix that clients see; "" if the text is something else.
std::string asset_id_of(const std::string& text);

}  // namespace flux2
