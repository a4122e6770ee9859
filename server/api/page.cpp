#include "server/api/page.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "base/path_exists.h"
#include "server/http/errors.h"
#include "webui/files.h"

namespace flux2 {

namespace {

constexpr uint64_t kLargestFile = 4 << 20;
constexpr const char* kPolicy =
    "default-src 'self'; img-src 'self' blob: data:; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'self'";

const PageFile& file_named(std::string_view path) {
  const auto files = page_files();
  const auto found = std::ranges::find(files, path, &PageFile::path);
  if (found == files.end()) throw HttpError(404, "unknown_url", "file not found");
  return *found;
}

bool takes_gzip(const ServerRequest& request) {
  const std::string_view encodings = request.header("accept-encoding");
  return encodings.find("gzip") != encodings.npos && encodings.find("gzip;q=0") == encodings.npos;
}

HttpResponse page_response(std::string body, std::string_view content_type, const char* cache) {
  HttpResponse response;
  response.content_type = content_type;
  response.body = std::move(body);
  response.headers = {{"content-security-policy", kPolicy},
                      {"x-content-type-options", "nosniff"},
                      {"referrer-policy", "no-referrer"},
                      {"cross-origin-resource-policy", "same-origin"},
                      {"cache-control", cache}};
  return response;
}

HttpResponse embedded(const ServerRequest& request, const PageFile& file, const char* cache) {
  const bool gzip = takes_gzip(request);
  HttpResponse response = page_response(std::string(gzip ? file.gzip : file.plain), file.content_type, cache);
  response.etag = fmt::format("\"{}{}\"", page_version(), gzip ? "-g" : "");
  response.headers.push_back({"vary", "accept-encoding"});
  if (gzip) response.headers.push_back({"content-encoding", "gzip"});
  return response;
}

// From the folder of somebody who works on the page. The path has no "..": the parser of addresses refuses it.
HttpResponse read_from(const std::filesystem::path& folder, std::string_view path) {
  constexpr std::pair<std::string_view, const char*> kTypes[] = {{".html", "text/html; charset=utf-8"},
                                                                 {".js", "text/javascript; charset=utf-8"},
                                                                 {".css", "text/css; charset=utf-8"},
                                                                 {".json", "application/json"},
                                                                 {".svg", "image/svg+xml"}};
  const auto type = std::ranges::find_if(kTypes, [&](const auto& known) { return path.ends_with(known.first); });
  if (type == std::end(kTypes) || !is_file(folder / path)) throw HttpError(404, "unknown_url", "file not found");
  constexpr std::string_view kVersion = "{{version}}";
  std::string text = read_text_file(folder / path, {.bytes = kLargestFile});
  for (size_t at; (at = text.find(kVersion)) != text.npos;) text.replace(at, kVersion.size(), "dev");
  return page_response(std::move(text), type->second, "no-store");
}

}  // namespace

void add_page_routes(Router& router, const std::filesystem::path& folder) {
  const auto add = [&](const char* pattern, const char* summary, const char* cache, auto name_of) {
    router.add({.method = "GET",
                .pattern = pattern,
                .handler = answering([folder, cache, name_of](const ServerRequest& request) {
                  const std::string_view name = name_of(request);
                  return folder.empty() ? embedded(request, file_named(name), cache) : read_from(folder, name);
                }),
                .scope = Scope::None,
                .summary = summary});
  };
  add("/", "the page", "no-cache", [](const ServerRequest&) { return std::string_view("index.html"); });
  // The address contains the version, so what it leads to never changes.
  add("/ui/{version}/{path...}", "a file of the page", "public, max-age=31536000, immutable",
      [](const ServerRequest& request) { return std::string_view(request.parameter("path")); });
}

}  // namespace flux2
