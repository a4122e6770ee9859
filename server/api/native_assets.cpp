#include "base/text.h"
#include "server/api/native.h"
#include "server/api/studio.h"
#include "server/api/studio_json.h"
#include "server/http/errors.h"
#include "server/store/ids.h"

namespace flux2 {

namespace {

Asset asset_of(const ServerRequest& request, ApiContext& api) {
  const std::string id = id_without_prefix(request.parameter("id"), "ast_");
  const auto asset = id.empty() ? std::nullopt : api.queue.assets().get(id);
  if (!asset) throw HttpError(404, "not_found", "asset not found");
  return *asset;
}

HttpResponse upload(const ServerRequest& request, ApiContext& api) {
  if (!request.is_multipart)
    throw HttpError(415, "unsupported_media_type", "the body must be a multipart form with a part \"file\"");
  for (const FormPart& part : request.parts) {
    if (part.name != "file" && part.name != "image") continue;
    Asset fields;
    fields.kind = "upload";
    if (const auto project = project_argument(request)) {
      const auto found = ProjectStore(api.queue.assets().database()).get(*project);
      if (!found || found->deleted != 0) throw HttpError(400, "invalid_request", "project: project not found", "project");
      fields.project = *project;
    }
    try {
      const Asset asset = part.file.empty() ? api.queue.assets().put(std::as_bytes(std::span(part.data)), fields)
                                            : api.queue.assets().put_file(part.file, fields);
      const auto item = AssetCatalog(api.queue.assets().database()).get(asset.id);
      if (!item) throw HttpError(410, "gone", "the image was deleted in the meantime");
      api.queue.events().publish("asset.created", item_to_json(*item));
      HttpResponse response = HttpResponse::json(item_to_json(*item), 201);
      response.headers.push_back({"location", "/api/v1/assets/ast_" + asset.id});
      return response;
    } catch (const Error& e) {
      if (e.code() != ErrorCode::InvalidArgument && e.code() != ErrorCode::BadFile) throw;
      throw HttpError(400, "invalid_image_file", e.what(), "file");
    }
  }
  throw HttpError(400, "invalid_request", "the form has no part \"file\"", "file");
}

HttpResponse file_of_asset(const ServerRequest& request, ApiContext& api, bool thumb) {
  const Asset asset = asset_of(request, api);
  if (asset.missing) throw HttpError(410, "gone", "the file of this asset was deleted");
  HttpResponse response;
  response.file = thumb ? api.queue.assets().thumbnail(asset) : api.queue.assets().path_of(asset);
  response.content_type = thumb ? (response.file.extension() == ".webp" ? "image/webp" : "image/jpeg") : asset.mime;
  response.etag = '"' + asset.sha256 + (thumb ? "-t" : "") + '"';
  response.headers = {{"cache-control", "private, max-age=31536000, immutable"},
                      {"content-disposition", "inline; filename=" + asset.id + response.file.extension().string()}};
  return response;
}

}  // namespace

void add_asset_routes(Router& router, ApiContext& api) {
  const auto add = [&](const char* method, const char* pattern, const char* summary,
                       std::function<HttpResponse(const ServerRequest&)> answer, uint64_t body = 1 << 20, const char* form = "") {
    router.add({.method = method,
                .pattern = pattern,
                .handler = answering(std::move(answer)),
                .scope = Scope::Generate,
                .body_limit = body,
                .summary = summary,
                .arguments = form == std::string() ? std::vector<std::string>() : std::vector<std::string>{"project"},
                .form = form});
  };
  add(
      "POST", "/api/v1/uploads", "upload an image as the part \"file\" of a form",
      [&api](const ServerRequest& request) { return upload(request, api); }, kImageBody,
      R"({"type":"object","required":["file"],"properties":{"file":{"type":"string","format":"binary"}}})");
  add("GET", "/api/v1/assets/{id}/file", "its file",
      [&api](const ServerRequest& request) { return file_of_asset(request, api, false); });
  add("GET", "/api/v1/assets/{id}/thumb", "a thumbnail of an asset",
      [&api](const ServerRequest& request) { return file_of_asset(request, api, true); });
}

}  // namespace flux2
