#include "hub/remote/plan_url.h"

#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "hub/remote/choose_files.h"
#include "hub/remote/hub_cache.h"
#include "hub/remote/safe_path.h"
#include "net/http.h"
#include "net/url.h"

namespace flux2 {

namespace fs = std::filesystem;

namespace {

// attachment; filename="model.safetensors"
std::string told_name(const HttpAnswer& answer) {
  const std::string text = answer.header("Content-Disposition").value_or("");
  const size_t at = text.find("filename=");
  if (at == text.npos) return {};
  std::string name = text.substr(at + 9);
  if (name.starts_with('"')) return name.substr(1, name.find('"', 1) - 1);
  return name.substr(0, name.find_first_of("; "));
}

HttpAnswer ask(const Source& source, const FetchOptions& options, const Log& log) {
  const HttpClient http(options.hub.http);
  Retry retry({.tries = std::min(options.retry.tries, 4), .first_s = options.retry.first_s}, options.cancelled, log);
  HttpRequest request{.method = "HEAD",
                      .url = source.url,
                      .headers = {{"Accept-Encoding", "identity"}},
                      .token = options.hub.token_for(source.url),
                      .idle_timeout_s = options.hub.metadata_timeout_s,
                      .cancelled = options.cancelled};
  for (;;) {
    HttpAnswer answer = send_following(http, request, {.begin = [](const HttpAnswer&) { return false; }});
    if (answer.ok()) return answer;
    if (is_worth_retrying(answer)) {
      retry.wait(answer, printable(source.url));
    } else if (request.method == "HEAD" && !answer.failed()) {  // addresses signed for GET refuse a HEAD
      request.method = "GET";
      request.headers.push_back({"Range", "bytes=0-0"});
    } else {
      const bool absent = answer.status == 404 || answer.status == 410;
      throw Error(absent ? ErrorCode::NotFound : ErrorCode::Network, fmt::format("{}: {}", printable(source.url), in_words(answer)),
                  answer.status == 401 || answer.status == 403
                      ? "the address needs a login; fetch the file with a browser and name it by its path"
                      : "check the address");
    }
  }
}

}  // namespace

FetchPlan plan_url(const Source& source, const FetchOptions& options, const Log& log) {
  check(!options.local_dir.empty(), "{} needs a folder to be fetched to", printable(source.url));
  FetchPlan plan{.source = source, .reason = "the one file at this address", .root = options.local_dir};
  PlannedFile file{.path = file_name_of(parse_url(source.url)), .url = source.url};
  std::error_code ignored;
  if (options.hub.offline) {
    file.target = options.local_dir / file.path;
    if (!is_safe_path(file.path) || !fs::is_regular_file(file.target, ignored))
      throw Error(ErrorCode::Network, fmt::format("{} cannot be fetched offline", printable(source.url)),
                  "leave out --offline and HF_HUB_OFFLINE");
    file.size = fs::file_size(file.target, ignored);
    file.present = plan.from_cache = true;
    plan.files = {file};
    return plan;
  }
  const HttpAnswer answer = ask(source, options, log);
  if (const std::string name = told_name(answer); !name.empty()) file.path = name;
  if (!is_safe_path(file.path) || file.path.find('/') != file.path.npos)
    fail(ErrorCode::Network, "{} gives its file the name {}, which is not safe to write", printable(source.url), printable(file.path));
  if (!is_fetched_kind(file.path))
    throw Error(ErrorCode::Incompatible,
                fmt::format("{} is not fetched: only safetensors, GGUF, JSON and tokenizer files are", printable(file.path)),
                "look for a safetensors version");
  file.target = options.local_dir / file.path;
  file.size = whole_size(answer).value_or(0);
  // Only the hub promises that its mark is a hash; what others write may look like one and is not.
  file.etag = bare_etag(answer.header("X-Linked-Etag").value_or(""));
  for (const char* mark : {"ETag", "Last-Modified"})
    if (const auto told = answer.header(mark); told && file.etag.empty()) file.etag = fmt::format("{} {}", mark, *told);
  file.present = file.size > 0 && is_file_of_size(file.target, file.size);
  plan.files = {file};
  return plan;
}

}  // namespace flux2
