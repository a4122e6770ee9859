#include "hub/remote/hub_client.h"

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "hub/remote/hub_cache.h"
#include "net/hide_token.h"
#include "net/http.h"
#include "net/url.h"

namespace flux2 {

namespace {

constexpr int kMetadataTries = 4;  // a person waits for these
constexpr int kMaxRedirects = 10;
constexpr int kMaxPages = 1000;
constexpr size_t kMaxFiles = 100'000;

std::string api_url(const HubSettings& hub, const std::string& repository, const char* what, const std::string& revision) {
  return fmt::format("{}/api/models/{}/{}/{}", hub.endpoint, url_quoted_path(repository), what, url_quoted(revision));
}

// The address of `Link: <…>; rel="next"`.
std::optional<std::string> next_page(const HttpAnswer& answer) {
  const std::string links = answer.header("Link").value_or("");
  for (size_t at = 0; (at = links.find('<', at)) != links.npos;) {
    const size_t end = links.find('>', at);
    if (end == links.npos) break;
    const size_t next = std::min(links.find('<', end), links.size());
    if (links.substr(end, next - end).find("rel=\"next\"") != std::string::npos)
      return resolve_location(answer.url, links.substr(at + 1, end - at - 1));
    at = end;
  }
  return std::nullopt;
}

std::string text_of(const Json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return object.is_object() && found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

Json body_of(const HttpAnswer& answer) {
  return in_context("the answer of " + printable(answer.url), [&] { return parse_json(answer.body); });
}

// Names of files are shown, logged and stored, so none may contain the token.
std::optional<RemoteFile> file_of(const Json& entry, const std::string& token) {
  if (!entry.is_object() || text_of(entry, "type") != "file") return std::nullopt;
  RemoteFile file{.path = text_of(entry, "path"), .etag = text_of(entry, "oid")};
  if (const auto lfs = entry.find("lfs"); lfs != entry.end() && lfs->is_object()) file.etag = text_of(*lfs, "oid");
  if (const auto size = entry.find("size"); size != entry.end() && size->is_number_unsigned()) file.size = size->get<uint64_t>();
  if (!is_safe_path(file.path))
    fail(ErrorCode::Network, "the hub lists the file {}, whose path is not safe to write", printable(file.path));
  if (!token.empty() && file.path.find(token) != file.path.npos)
    fail(ErrorCode::Network, "the hub lists a file whose name contains the token that was sent to it");
  return file;
}

}  // namespace

std::string file_url(const HubSettings& hub, const std::string& repository, const std::string& revision,
                     const std::string& path) {
  return fmt::format("{}/{}/resolve/{}/{}", hub.endpoint, url_quoted_path(repository), url_quoted(revision),
                     url_quoted_path(path));
}

HubClient::HubClient(const HttpClient& http, HubSettings settings, Manner manner)
    : http_(http), settings_(std::move(settings)), manner_(std::move(manner)) {
  manner_.retry.tries = std::min(manner_.retry.tries, kMetadataTries);
}

HubQuestion HubClient::question(const std::string& repository, const std::string& revision, const std::string& path) const {
  return {settings_.endpoint, repository, revision, path, settings_.token_for(settings_.endpoint)};
}

HttpAnswer HubClient::ask(const std::string& method, const std::string& url) const {
  const HttpRequest request{.method = method,
                            .url = url,
                            .headers = {{"Accept-Encoding", "identity"}},
                            .token = settings_.token_for(url),
                            .idle_timeout_s = settings_.metadata_timeout_s,
                            .cancelled = manner_.cancelled};
  Retry retry(manner_.retry, manner_.cancelled, manner_.log);
  for (;;) {
    HttpAnswer answer = method == "HEAD" ? http_.send(request) : send_following(http_, request);
    answer.failure = hide_token(std::move(answer.failure), settings_.token);
    if (!is_worth_retrying(answer)) return answer;
    retry.wait(answer, hide_token(printable(url), settings_.token));
  }
}

RepositoryInfo HubClient::info(const std::string& repository, const std::string& revision) const {
  return hiding_token(settings_.token, [&] { return asked_info(repository, revision); });
}

std::vector<RemoteFile> HubClient::list(const std::string& repository, const std::string& revision) const {
  return hiding_token(settings_.token, [&] { return asked_list(repository, revision); });
}

std::optional<FileMetadata> HubClient::metadata(const std::string& repository, const std::string& revision,
                                                const std::string& path) const {
  return hiding_token(settings_.token, [&] { return asked_metadata(repository, revision, path); });
}

RepositoryInfo HubClient::asked_info(const std::string& repository, const std::string& revision) const {
  const HttpAnswer answer = ask("GET", api_url(settings_, repository, "revision", revision));
  if (!answer.ok()) fail_hub(answer, question(repository, revision));
  const Json body = body_of(answer);
  RepositoryInfo info{.commit = text_of(body, "sha")};
  if (!is_commit(info.commit))
    fail(ErrorCode::Network, "{} does not say which commit {} of {} is", settings_.endpoint, printable(revision), repository);
  if (const auto gated = body.find("gated"); gated != body.end())
    info.gated = gated->is_string() || (gated->is_boolean() && gated->get<bool>());
  if (const auto card = body.find("cardData"); card != body.end()) {
    info.licence = text_of(*card, "license");
    if (info.licence.empty() || info.licence == "other")
      if (const std::string name = text_of(*card, "license_name"); !name.empty()) info.licence = name;
    info.licence = hide_token(std::move(info.licence), settings_.token);
  }
  return info;
}

std::vector<RemoteFile> HubClient::asked_list(const std::string& repository, const std::string& revision) const {
  std::vector<RemoteFile> files;
  std::optional<std::string> url = api_url(settings_, repository, "tree", revision) + "?recursive=true";
  for (int page = 0; url; ++page) {
    if (page == kMaxPages || files.size() > kMaxFiles) fail(ErrorCode::Network, "the listing of {} does not end", repository);
    const HttpAnswer answer = ask("GET", *url);
    if (!answer.ok()) fail_hub(answer, question(repository, revision));
    const Json body = body_of(answer);
    if (!body.is_array()) fail(ErrorCode::Network, "the listing of {} is not a list", repository);
    for (const Json& entry : body)
      if (auto file = file_of(entry, settings_.token)) files.push_back(std::move(*file));
    url = next_page(answer);
    if (url && !same_origin(*url, settings_.endpoint))
      fail(ErrorCode::Network, "the listing of {} continues on another host, {}", repository, printable(*url));
  }
  return files;
}

std::optional<FileMetadata> HubClient::asked_metadata(const std::string& repository, const std::string& revision,
                                                      const std::string& path) const {
  // Relative redirects lead on within the hub; the headers we want come with the first answer that leads elsewhere.
  std::string url = file_url(settings_, repository, revision, path);
  HttpAnswer answer = ask("HEAD", url);
  for (int hops = 0; is_redirect(answer) && is_relative_location(*answer.header("Location")); ++hops) {
    if (hops == kMaxRedirects) fail(ErrorCode::Network, "{} redirects more than {} times", printable(url), kMaxRedirects);
    url = resolve_location(url, *answer.header("Location"));
    answer = ask("HEAD", url);
  }
  if (is_entry_missing(answer)) return std::nullopt;
  const bool redirect = is_redirect(answer);
  if (!answer.ok() && !redirect) fail_hub(answer, question(repository, revision, path));
  FileMetadata found;
  found.commit = answer.header("X-Repo-Commit").value_or("");
  const auto linked = answer.header("X-Linked-Etag");
  if (linked) found.etag = bare_etag(*linked);
  else if (!redirect) found.etag = bare_etag(answer.header("ETag").value_or(""));
  found.size = decimal(answer.header("X-Linked-Size").value_or(""));
  if (!found.size && !redirect) found.size = whole_size(answer);
  found.url = redirect ? resolve_location(url, *answer.header("Location")) : url;
  if (parse_url(url).secure() && !parse_url(found.url).secure())
    fail(ErrorCode::Network, "{} redirects to plain http, which is not followed", printable(url));
  return found;
}

}  // namespace flux2
