#include <fmt/format.h>

#include "base/atomic_file.h"
#include "server/api/native.h"
#include "server/api/studio.h"
#include "server/api/studio_json.h"
#include "server/http/errors.h"
#include "server/store/ids.h"
#include "server/store/project_archive.h"

namespace flux2 {

namespace {

constexpr uint64_t kLargestArchive = uint64_t{16} << 30;

HttpResponse export_project(const ServerRequest& request, ApiContext& api) {
  const Project project = project_in_path(request, api);
  const auto stream = std::make_shared<ZipStream>(archive_of(project.id, api.queue.assets()));
  HttpResponse response;
  response.content_type = "application/zip";
  response.pieces = [stream] { return stream->next(); };
  response.pieces_size = stream->size();
  response.headers = {{"content-disposition", fmt::format("attachment; filename={}.zip", project_id_text(project.id))},
                      {"cache-control", "no-store"}};
  return response;
}

Project import_file(const std::filesystem::path& file, ApiContext& api) {
  ZipLimits limits;
  limits.entry_bytes = std::max<uint64_t>(api.app.limits.image.file_bytes, uint64_t{256} << 20);
  return import_archive(*open_zip(file, limits), api.queue.assets(), api.app.limits.json);
}

Project import_part(const FormPart& part, ApiContext& api) {
  if (!part.file.empty()) return import_file(part.file, api);
  // A small part is in memory; the reader wants a file.
  const auto path = api.queue.assets().folder() / "uploads" / "incoming" / ("import-" + new_id() + ".zip");
  AtomicFile copy(path);
  copy.write(part.data.data(), part.data.size());
  copy.commit();
  struct Remover {
    const std::filesystem::path& path;
    ~Remover() {
      std::error_code ignored;
      std::filesystem::remove(path, ignored);
    }
  } remover{path};
  return import_file(path, api);
}

HttpResponse import_project(const ServerRequest& request, ApiContext& api) {
  if (!request.is_multipart)
    throw HttpError(415, "unsupported_media_type", "the body must be a multipart form with a part \"file\"");
  if (!zip_reader_available()) throw HttpError(501, "not_available", "this build cannot read zip archives: it has no libzip");
  for (const FormPart& part : request.parts) {
    if (part.name != "file") continue;
    try {
      const Project project = import_part(part, api);
      api.queue.events().publish("project.created", project_to_json(project));
      HttpResponse response = HttpResponse::json(project_to_json(project), 201);
      response.headers.push_back({"location", "/api/v1/projects/" + project_id_text(project.id)});
      return response;
    } catch (const Error& e) {
      if (e.code() != ErrorCode::InvalidArgument && e.code() != ErrorCode::BadFile) throw;
      throw HttpError(400, "invalid_archive", e.what(), "file");
    }
  }
  throw HttpError(400, "invalid_request", "the form has no part \"file\"", "file");
}

}  // namespace

void add_archive_routes(Router& router, ApiContext& api) {
  router.add({.method = "GET",
              .pattern = "/api/v1/projects/{id}/export",
              .handler = answering([&api](const ServerRequest& request) { return export_project(request, api); }),
              .scope = Scope::Generate,
              .summary = "the project with its images as a zip archive"});
  router.add({.method = "POST",
              .pattern = "/api/v1/projects/import",
              .handler = answering([&api](const ServerRequest& request) { return import_project(request, api); }),
              .scope = Scope::Generate,
              .form_limit = kLargestArchive,
              .summary = "make a new project from an exported archive, the part \"file\" of a form",
              .form = R"({"type":"object","required":["file"],"properties":{"file":{"type":"string","format":"binary"}}})"});
}

}  // namespace flux2
