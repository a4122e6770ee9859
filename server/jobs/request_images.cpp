#include "server/jobs/request_images.h"

#include <string_view>

#include "base/base64.h"
#include "base/error.h"
#include "base/text.h"
#include "server/http/errors.h"
#include "server/store/ids.h"

namespace flux2 {

std::string asset_id_of(const std::string& text) {
  constexpr std::string_view kPrefix = "asset:";
  if (!text.starts_with(kPrefix)) return {};
  std::string id = text.substr(kPrefix.size());
  if (const std::string bare = id_without_prefix(id, "ast_"); !bare.empty()) id = bare;
  return id;
}

std::filesystem::path file_of_image(const std::string& text, const AssetStore& assets) {
  HttpError deleted(400, "invalid_image_file", "the image " + printable(text) + " of this job was deleted");
  deleted.hint = "send the image again in a new job";
  const auto asset = assets.get(asset_id_of(text));
  if (!asset) throw deleted;
  try {
    return assets.path_of(*asset);
  } catch (const Error& e) {
    if (e.code() == ErrorCode::NotFound) throw deleted;
    throw;
  }
}

std::string stored_image(const std::string& text, const std::string& kind, AssetStore& assets, const AppContext& context,
                         const std::string& param) {
  const auto wrong = [&](const std::string& why) { return HttpError(400, "invalid_image_file", param + ": " + why, param); };
  if (text.starts_with("asset:")) {
    const std::string id = asset_id_of(text);
    const auto asset = is_id(id) ? assets.get(id) : std::nullopt;
    if (!asset || asset->missing) throw wrong("asset " + printable(text.substr(6)) + " not found");
    return "asset:" + id;
  }
  if (text.starts_with("http://") || text.starts_with("https://")) {
    const AssetStore::Fetch fetch = assets.fetch();
    if (!fetch) throw wrong("this server does not fetch images from addresses; send the image itself");
    try {
      return "asset:" + assets.put(fetch(text), {.kind = kind}).id;
    } catch (const Error& e) {
      throw wrong(e.what());
    }
  }
  std::string_view encoded = text;
  if (encoded.starts_with("data:")) {
    const size_t comma = encoded.find(',');
    if (comma == encoded.npos || encoded.substr(0, comma).find(";base64") == encoded.npos)
      throw wrong("the data URL is not base64");
    encoded.remove_prefix(comma + 1);
  }
  try {
    if (encoded.size() / 4 * 3 > context.limits.image.file_bytes) throw wrong("the image is too large");
    return "asset:" + assets.put(base64_decode(encoded), {.kind = kind}).id;
  } catch (const Error& e) {
    throw wrong(e.code() == ErrorCode::InvalidArgument || e.code() == ErrorCode::BadFile
                    ? std::string("the image cannot be read: ") + e.what()
                    : e.what());
  }
}

}  // namespace flux2
