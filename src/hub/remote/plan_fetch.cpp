#include <algorithm>
#include <cctype>
#include <optional>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "hub/remote/choose_files.h"
#include "hub/remote/fetch.h"
#include "hub/remote/hub_cache.h"
#include "hub/remote/hub_client.h"
#include "hub/remote/known_files.h"
#include "net/hide_token.h"
#include "net/http.h"
#include "net/url.h"

namespace flux2 {

namespace fs = std::filesystem;

namespace {

Hint online_again() { return Hint("run without {0} and HF_HUB_OFFLINE", {unset_option("offline")}); }

Hint into_plain_folder() {
  return Hint("download to a plain folder with {0}, or use another HF_ENDPOINT", {set_option("local_dir")});
}

// attachment; filename="modele.safetensors"; filename*=UTF-8''mod%C3%A8le.safetensors
// The second form is the name as it really is; servers add the first one for programs that know no other.
std::string told_name(const HttpAnswer& answer) {
  const std::string text = answer.header("Content-Disposition").value_or("");
  constexpr std::string_view kExact = "filename*=";
  if (const size_t exact = text.find(kExact); exact != text.npos) {
    std::string name = text.substr(exact + kExact.size());
    name = name.substr(0, name.find(';'));
    std::erase(name, '"');
    std::string charset = name.substr(0, name.find('\''));
    std::ranges::transform(charset, charset.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    const size_t language = name.find('\'', charset.size() + 1);
    if (charset == "UTF-8" && language != name.npos) return url_unquoted(trimmed(name.substr(language + 1)));
  }
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
      throw Error(absent ? ErrorCode::NotFound : ErrorCode::Network,
                  fmt::format("{}: {}", printable(source.url), in_words(answer)),
                  answer.status == 401 || answer.status == 403
                      ? "the address needs a login; fetch the file with a browser and name it by its path"
                      : "check the address");
    }
  }
}

// The plan for one file by its address, into options.local_dir under the name the server or the address gives it.
FetchPlan plan_url(const Source& source, const FetchOptions& options, const Log& log) {
  check(!options.local_dir.empty(), "{} needs a folder to be downloaded to", printable(source.url));
  FetchPlan plan{.source = source, .reason = "the one file at this address", .root = options.local_dir};
  PlannedFile file{.path = file_name_of(parse_url(source.url)), .url = source.url};
  std::error_code ignored;
  if (options.hub.offline) {
    file.target = options.local_dir / file.path;
    if (!is_safe_path(file.path) || !fs::is_regular_file(file.target, ignored))
      throw Error(ErrorCode::Network, fmt::format("{} cannot be downloaded offline", printable(source.url)), online_again());
    file.size = fs::file_size(file.target, ignored);
    file.present = plan.from_cache = true;
    plan.files = {file};
    return plan;
  }
  const HttpAnswer answer = ask(source, options, log);
  if (const std::string name = told_name(answer); !name.empty()) file.path = name;
  if (!is_safe_path(file.path) || file.path.find('/') != file.path.npos)
    fail(ErrorCode::Network, "{} names its file {}, which is not safe to write", printable(source.url), printable(file.path));
  if (!options.hub.token.empty() && file.path.find(options.hub.token) != file.path.npos)
    fail(ErrorCode::Network, "{} names its file like the token that was sent to it", printable(source.url));
  if (!is_fetched_kind(file.path))
    throw Error(
        ErrorCode::Incompatible,
        fmt::format("{} is not downloaded: only safetensors, GGUF, JSON and tokenizer files are allowed", printable(file.path)),
        "look for a safetensors version");
  file.target = options.local_dir / file.path;
  file.size = whole_size(answer).value_or(0);
  // Only the hub promises that its mark is a hash; what others write may look like one and is not.
  file.etag = bare_etag(answer.header("X-Linked-Etag").value_or(""));
  for (const char* mark : {"ETag", "Last-Modified"})
    if (const auto told = answer.header(mark); told && file.etag.empty()) file.etag = fmt::format("{} {}", mark, *told);
  file.version = version_of(answer);
  file.present = file.size > 0 && is_file_of_size(file.target, file.size);
  plan.files = {file};
  return plan;
}

void require_blob_id(const PlannedFile& file, const Source& source) {
  if (!is_blob_id(file.etag))
    throw Error(ErrorCode::Network,
                fmt::format("the hub does not report a hash for {} of {}, so it cannot be stored in the shared cache",
                            printable(file.path), source.repository),
                into_plain_folder());
}

// Decides where each file goes, and notes which are there already.
void set_targets(FetchPlan& plan, const FetchOptions& options, const std::vector<RemoteFile>& chosen) {
  const bool plain = !options.local_dir.empty();
  const std::optional<HubCache> cache =
      plain ? std::nullopt : std::optional<HubCache>(std::in_place, options.hub.cache, plan.source.repository);
  plan.root = plain ? options.local_dir : cache->snapshot(plan.commit);
  const std::string& revision = plan.commit.empty() ? plan.source.revision : plan.commit;
  for (const RemoteFile& f : chosen) {
    PlannedFile p{.path = f.path,
                  .url = file_url(options.hub, plan.source.repository, revision, f.path),
                  .target = plan.root / f.path,
                  .size = f.size,
                  .etag = f.etag};
    if (!plain) require_blob_id(p, plan.source);
    p.present =
        is_file_of_size(p.target, p.size) || (!plain && options.hub.symlinks && is_file_of_size(cache->blob(p.etag), p.size));
    plan.files.push_back(std::move(p));
  }
}

// A mirror that answers for files but lists nothing: the files that were named, one by one.
std::vector<RemoteFile> named_files(const HubClient& hub, FetchPlan& plan) {
  std::vector<RemoteFile> files;
  for (const std::string& path : plan.source.paths) {
    const auto found = hub.metadata(plan.source.repository, plan.source.revision, path);
    if (!found)
      throw Error(ErrorCode::NotFound, fmt::format("{} has no file {}", plan.source.repository, printable(path)),
                  "check its path");
    if (is_commit(found->commit)) plan.commit = found->commit;
    files.push_back({path, found->size.value_or(0), is_blob_id(found->etag) ? found->etag : std::string()});
  }
  if (plan.commit.empty() && is_commit(plan.source.revision)) plan.commit = plan.source.revision;
  return files;
}

FetchPlan asked_plan(const Source& source, const FetchOptions& options, const Log& log) {
  const HttpClient http(options.hub.http);
  const HubClient hub(http, options.hub, {options.retry, options.cancelled, log});
  FetchPlan plan{.source = source};
  FileChoice choice;
  const bool names_files = !source.paths.empty() && std::ranges::all_of(source.paths, is_fetched_kind);
  try {
    const RepositoryInfo info = hub.info(source.repository, source.revision);
    plan.commit = info.commit;
    plan.licence = info.licence;
    plan.gated = info.gated;
    choice = choose_files(hub.list(source.repository, info.commit), source);
  } catch (const Error& e) {
    if (!plan.commit.empty() || !names_files || e.code() != ErrorCode::NotFound) throw;
    log.debug("{}; asking for the files themselves", e.what());
    choice = {named_files(hub, plan), "the files that were named"};
    if (plan.commit.empty() && options.local_dir.empty())
      throw Error(ErrorCode::Network,
                  fmt::format("{} does not report the commit of {}, so its files cannot be stored in the shared cache",
                              options.hub.endpoint, source.repository),
                  into_plain_folder());
  }
  plan.reason = choice.reason;
  set_targets(plan, options, choice.files);
  return plan;
}

// Shards that an index promises and the cache lacks.
void require_shards(const FetchPlan& plan) {
  for (const PlannedFile& index : plan.files) {
    if (!index.path.ends_with(".index.json")) continue;
    const WeightLimits limits;
    const Json json =
        read_json(index.target, {.bytes = limits.header_bytes, .keys = limits.tensors, .values = 2 * limits.tensors});
    const auto map = json.is_object() ? json.find("weight_map") : json.end();
    if (!json.is_object() || map == json.end() || !map->is_object())
      fail(ErrorCode::BadFile, "{} is not an index: it has no weight_map", index.target.string());
    std::set<std::string> names;
    for (const auto& [tensor, file] : map->items()) names.insert(file.is_string() ? file.get<std::string>() : std::string());
    for (const std::string& name : names) {
      if (!is_safe_path(name) || !fs::exists(index.target.parent_path() / name))
        throw Error(ErrorCode::NotFound,
                    fmt::format("the cache contains only a part of {}: {} is missing", plan.source.repository, printable(name)),
                    "run the command again with network access");
    }
  }
}

FetchPlan cached_plan(const Source& source, const FetchOptions& options) {
  const HubCache cache(options.hub.cache, source.repository);
  const auto commit = cache.commit_of(source.revision);
  const std::vector<RemoteFile> there = commit ? cache.files(*commit) : std::vector<RemoteFile>();
  for (const std::string& path : source.paths)
    if (commit && cache.is_known_absent(*commit, path))
      throw Error(ErrorCode::NotFound, fmt::format("{} has no file {}", source.repository, printable(path)), "check its path");
  if (there.empty())
    throw Error(ErrorCode::NotFound,
                fmt::format("{} is not in the cache ({}), and network access is off", source.text(), options.hub.cache.string()),
                Hint("run once without {0} and HF_HUB_OFFLINE to download it", {unset_option("offline")}));
  FetchPlan plan{.source = source, .commit = *commit, .root = cache.snapshot(*commit), .from_cache = true};
  const FileChoice choice = in_context("in the cache", [&] { return choose_files(there, source); });
  plan.reason = choice.reason + ", as the cache has them";
  for (const RemoteFile& f : choice.files)
    plan.files.push_back({.path = f.path,
                          .url = file_url(options.hub, source.repository, *commit, f.path),
                          .target = plan.root / f.path,
                          .size = f.size,
                          .etag = f.etag,
                          .present = true});
  require_shards(plan);
  return plan;
}

[[noreturn]] void fail_without_http(const Source& source, const FetchOptions& options) {
  std::string list;
  for (const KnownFile& f : known_files_of(source.repository))
    list += fmt::format("\n  {}  ({}{})", file_url(options.hub, f.repository, "main", f.path), f.exact ? "" : "about ",
                        byte_text(f.bytes));
  throw Error(
      ErrorCode::Network, "this build cannot download files: it has no HTTP client",
      Hint("download the files with another program and register them with {0} and {1}" + (list.empty() ? "" : ":" + list),
           {run_command("models scan FOLDER"), set_option("add")}));
}

}  // namespace

uint64_t FetchPlan::total_bytes() const {
  uint64_t bytes = 0;
  for (const PlannedFile& f : files) bytes += f.size;
  return bytes;
}

uint64_t FetchPlan::missing_bytes() const {
  uint64_t bytes = 0;
  for (const PlannedFile& f : files) bytes += f.present ? 0 : f.size;
  return bytes;
}

namespace {

FetchPlan plan_of(const Source& source, const FetchOptions& options, const Log& log) {
  if (source.repository.empty()) return plan_url(source, options, log);
  const bool plain = !options.local_dir.empty();
  if (options.hub.offline && plain)
    throw Error(ErrorCode::Network, fmt::format("{} cannot be downloaded offline", source.text()), online_again());
  if (options.hub.offline) return cached_plan(source, options);
  try {
    if (!HttpClient::available()) fail_without_http(source, options);
    return asked_plan(source, options, log);
  } catch (const Error& e) {
    // Whatever keeps the hub from answering, or us from its files: what was fetched before is still good.
    if (e.code() != ErrorCode::Network || plain) throw;
    try {
      FetchPlan plan = cached_plan(source, options);
      log.warn("{}; using the cached files", hide_token(e.what(), options.hub.token));
      return plan;
    } catch (const Error&) {
      throw Error(e);
    }
  }
}

}  // namespace

FetchPlan plan_fetch(const Source& source, const FetchOptions& options, const Log& log) {
  return hiding_token(options.hub.token, [&] { return plan_of(source, options, log); });
}

}  // namespace flux2
