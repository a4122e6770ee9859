#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "base/text.h"
#include "hub/remote/choose_files.h"
#include "hub/remote/fetch.h"
#include "hub/remote/hub_cache.h"
#include "hub/remote/hub_client.h"
#include "hub/remote/known_files.h"
#include "hub/remote/plan_url.h"
#include "hub/remote/safe_path.h"

namespace flux2 {

namespace fs = std::filesystem;

namespace {

void require_blob_id(const PlannedFile& file, const Source& source) {
  if (!is_blob_id(file.etag))
    throw Error(ErrorCode::Network,
                fmt::format("the hub does not say what {} of {} is, so it cannot enter the shared cache", printable(file.path),
                            source.repository),
                "download it to a plain folder (--local-dir), or use another HF_ENDPOINT");
}

// Where each file goes and whether it is there.
void place(FetchPlan& plan, const FetchOptions& options, const std::vector<RemoteFile>& chosen) {
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
      throw Error(ErrorCode::NotFound, fmt::format("{} has no file {}", plan.source.repository, printable(path)), "check its path");
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
                  fmt::format("{} does not say which commit of {} its files are, so they cannot enter the shared cache",
                              options.hub.endpoint, source.repository),
                  "download them to a plain folder (--local-dir), or use another HF_ENDPOINT");
  }
  plan.reason = choice.reason;
  place(plan, options, choice.files);
  return plan;
}

// Shards that an index promises and the cache lacks.
void require_shards(const FetchPlan& plan) {
  for (const PlannedFile& index : plan.files) {
    if (!index.path.ends_with(".index.json")) continue;
    const Json map = read_json(index.target).value("weight_map", Json::object());
    for (const auto& [tensor, file] : map.items()) {
      const std::string name = file.is_string() ? file.get<std::string>() : std::string();
      if (!is_safe_path(name) || !fs::exists(index.target.parent_path() / name))
        throw Error(ErrorCode::NotFound,
                    fmt::format("the cache holds only a part of {}: {} is missing", plan.source.repository, printable(name)),
                    "fetch it again with a network");
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
                fmt::format("{} is not in the cache ({}) and the hub is not asked", source.text(), options.hub.cache.string()),
                "fetch it once with a network: without --offline and HF_HUB_OFFLINE");
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
  throw Error(ErrorCode::Network, "this build has no HTTP client and downloads nothing",
              "fetch the files with another program and register them with `flux2 models scan FOLDER --add`" +
                  (list.empty() ? "" : ":" + list));
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

FetchPlan plan_fetch(const Source& source, const FetchOptions& options, const Log& log) {
  if (source.repository.empty()) return plan_url(source, options, log);
  const bool plain = !options.local_dir.empty();
  if (options.hub.offline && plain)
    throw Error(ErrorCode::Network, fmt::format("{} cannot be fetched offline", source.text()),
                "leave out --offline and HF_HUB_OFFLINE");
  if (options.hub.offline) return cached_plan(source, options);
  try {
    if (!HttpClient::available()) fail_without_http(source, options);
    return asked_plan(source, options, log);
  } catch (const Error& e) {
    // Whatever keeps the hub from answering, or us from its files: what was fetched before is still good.
    if (e.code() != ErrorCode::Network || plain) throw;
    try {
      FetchPlan plan = cached_plan(source, options);
      log.warn("{}; using what the cache has", e.what());
      return plan;
    } catch (const Error&) {
      throw Error(e);
    }
  }
}

}  // namespace flux2
