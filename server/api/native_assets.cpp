#include "base/text.h"
#include "server/api/native.h"
#include "server/http/errors.h"
#include "server/store/ids.h"

namespace flux2 {

namespace {

Json asset_to_json(const Asset& asset) {
  const std::string id = "ast_" + asset.id;
  return {{"id", id},
          {"image", "asset:" + asset.id},
          {"kind", asset.kind},
          {"mime", asset.mime},
          {"bytes", asset.bytes},
          {"sha256", asset.sha256},
          {"width", asset.width},
          {"height", asset.height},
          {"job_id", asset.job.empty() ? Json(nullptr) : Json("job_" + asset.job)},
          {"created_at", rfc3339(asset.created)},
          {"url", "/api/v1/assets/" + id + "/file"},
          {"thumb_url", "/api/v1/assets/" + id + "/thumb"}};
}

Asset asset_of(const ServerRequest& request, ApiContext& api) {
  const std::string id = id_without_prefix(request.parameter("id"), "ast_");
  const auto asset = id.empty() ? std::nullopt : api.queue.assets().get(id);
  if (!asset) throw HttpError(404, "not_found", "there is no such asset");
  return *asset;
}

HttpResponse upload(const ServerRequest& request, ApiContext& api) {
  if (!request.is_multipart)
    throw HttpError(415, "unsupported_media_type", "the body must be a multipart form with a part \"file\"");
  for (const FormPart& part : request.parts) {
    if (part.name != "file" && part.name != "image") continue;
    Asset fields;
    fields.kind = "upload";
    try {
      const Asset asset = part.file.empty() ? api.queue.assets().put(std::as_bytes(std::span(part.data)), fields)
                                            : api.queue.assets().put_file(part.file, fields);
      HttpResponse response = HttpResponse::json(asset_to_json(asset), 201);
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
  if (asset.missing) throw HttpError(410, "gone", "the file of this asset is gone");
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
                       std::function<HttpResponse(const ServerRequest&)> answer, uint64_t body = 1 << 20) {
    router.add({.method = method,
                .pattern = pattern,
                .handler = answering(std::move(answer)),
                .scope = Scope::Generate,
                .body_limit = body,
                .summary = summary});
  };
  add(
      "POST", "/api/v1/uploads", "upload an image as the part \"file\" of a form",
      [&api](const ServerRequest& request) { return upload(request, api); }, kImageBody);
  add("GET", "/api/v1/assets/{id}", "an image, mask or upload",
      [&api](const ServerRequest& request) { return HttpResponse::json(asset_to_json(asset_of(request, api))); });
  add("GET", "/api/v1/assets/{id}/file", "its file",
      [&api](const ServerRequest& request) { return file_of_asset(request, api, false); });
  add("GET", "/api/v1/assets/{id}/thumb", "a small version of it",
      [&api](const ServerRequest& request) { return file_of_asset(request, api, true); });
  add("DELETE", "/api/v1/assets/{id}", "delete it", [&api](const ServerRequest& request) {
    const Asset asset = asset_of(request, api);
    api.queue.assets().remove(asset.id);
    api.queue.events().publish("asset.deleted", {{"id", "ast_" + asset.id}});
    return HttpResponse::empty(204);
  });
}

}  // namespace flux2
