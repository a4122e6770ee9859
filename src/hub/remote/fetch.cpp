#include "hub/remote/fetch.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <optional>
#include <span>
#include <thread>

#include "base/error.h"
#include "base/file_hash.h"
#include "base/sha256.h"
#include "base/start_thread.h"
#include "base/text.h"
#include "hub/remote/fetch_meter.h"
#include "hub/remote/file_lock.h"
#include "hub/remote/hash_behind.h"
#include "hub/remote/hub_cache.h"
#include "hub/remote/hub_client.h"
#include "hub/remote/transfer.h"
#include "net/hide_token.h"
#include "net/url.h"

namespace flux2 {

namespace fs = std::filesystem;

namespace {

constexpr double kReserve = 1.10;
constexpr auto kForeignPartialAge = std::chrono::hours(24);

fs::path existing_parent(fs::path path) {
  std::error_code ignored;
  while (path.has_parent_path() && path != path.parent_path() && !fs::exists(path, ignored)) path = path.parent_path();
  return path.empty() ? fs::path(".") : path;
}

uint64_t system_free_space(const fs::path& folder) {
  std::error_code failure;
  const fs::space_info space = fs::space(existing_parent(fs::absolute(folder)), failure);
  return failure ? UINT64_MAX : space.available;
}

class Fetcher {
 public:
  Fetcher(const FetchPlan& plan, const FetchOptions& options, const FetchProgress& progress, const Log& log)
      : plan_(plan),
        options_(options),
        log_(log),
        http_(options.hub.http),
        hub_(http_, options.hub, {options.retry, [this] { return cancelled(); }, log}),
        meter_(plan, progress) {
    if (!plan.source.repository.empty() && options.local_dir.empty()) cache_.emplace(options.hub.cache, plan.source.repository);
  }

  Downloaded run() {
    Downloaded result{.root = plan_.root,
                      .files = std::vector<FetchedFile>(plan_.files.size()),
                      .repository = plan_.source.repository,
                      .revision = plan_.source.repository.empty() ? "" : plan_.source.revision,
                      .commit = plan_.commit,
                      .url = plan_.source.url,
                      .licence = plan_.licence,
                      .gated = plan_.gated,
                      .reason = plan_.reason};
    if (!plan_.from_cache) {
      require_space();
      if (cache_) cache_->prepare();
    }
    const auto threads = std::clamp<size_t>(static_cast<size_t>(std::max(1, options_.files)), 1, 2);
    {
      std::vector<std::jthread> others;
      for (size_t i = 1; i < std::min(threads, plan_.files.size()); ++i)
        others.push_back(start_thread_if_possible([&] { some_files(result); }));
      some_files(result);
    }
    if (first_error_) std::rethrow_exception(first_error_);
    meter_.end();
    return result;
  }

 private:
  bool cancelled() const { return stop_ || (options_.cancelled && options_.cancelled()); }

  void some_files(Downloaded& result) {
    try {
      for (size_t i; (i = next_++) < plan_.files.size();) {
        if (cancelled()) fail(ErrorCode::Cancelled, "the download was cancelled");
        result.files[i] = bring(i);
        meter_.done(i, result.files[i].size);
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!first_error_) first_error_ = std::current_exception();
      stop_ = true;
    }
  }

  fs::path partial_of(const PlannedFile& f) const {
    return cache_ ? cache_->partial(f.etag) : fs::path(f.target.string() + ".part");
  }

  // What makes two downloads the same bytes. A server that gives no mark leaves the address and the size.
  static std::string key_of(const PlannedFile& f) { return f.etag.empty() ? fmt::format("{} {}", f.url, f.size) : f.etag; }

  uint64_t free_space(const fs::path& folder) const {
    return options_.free_space ? options_.free_space(folder) : system_free_space(folder);
  }

  void require_space() {
    uint64_t missing = 0;
    for (size_t i = 0; i < plan_.files.size(); ++i) {
      const PlannedFile& f = plan_.files[i];
      check_limit("download-bytes", f.size, options_.largest_file, printable(f.path) + " has {}", ErrorCode::CannotWrite);
      uint64_t have = f.present ? f.size : 0;
      std::error_code ignored;
      if (const fs::path partial = partial_of(f); !f.present && f.size > 0 && fs::exists(partial, ignored)) {
        try {
          have = PartialFile(partial, key_of(f), f.size, segment_size(f.size)).have();
        } catch (const Error&) {
          have = 0;  // another process is writing it; we shall wait for that one
        }
      }
      meter_.found(i, have);
      missing += f.size - std::min(have, f.size);
    }
    const fs::path folder = cache_ ? cache_->folder() : plan_.root;
    const uint64_t free = free_space(folder);
    const auto needed = static_cast<uint64_t>(static_cast<double>(missing) * kReserve);
    if (missing > 0 && free < needed)
      throw Error(
          ErrorCode::CannotWrite,
          fmt::format("not enough space for {}: {} are missing and need {} with a reserve of ten per cent, but {} has {} free",
                      printable(plan_.source.text()), byte_text(missing), byte_text(needed), folder.string(), byte_text(free)),
          cache_ ? "free some space, or put the cache elsewhere with HF_HOME" : "free some space, or choose another folder");
  }

  FetchedFile bring(size_t index) {
    const PlannedFile& f = plan_.files[index];
    if (plan_.from_cache) return finished(f, true, {});
    if (cache_) return bring_to_cache(index);
    if (f.present) {
      meter_.verifying(index);
      const std::string sha256 = hash_of(f.target);
      if (is_announced(f, sha256)) {
        remove_leftover_note_of(partial_of(f));
        return finished(f, true, sha256);
      }
    }
    return finished(f, false, download(index, f.target));
  }

  FetchedFile bring_to_cache(size_t index) {
    const PlannedFile& f = plan_.files[index];
    const bool symlinks = options_.hub.symlinks;
    const FileLock lock(
        cache_->lock(f.etag), [this] { return cancelled(); }, log_);
    // Looked at again: another process may have brought it while we waited.
    const bool in_snapshot = is_file_of_size(f.target, f.size),
               in_blobs = symlinks && is_file_of_size(cache_->blob(f.etag), f.size);
    std::string sha256;
    if (!in_snapshot && !in_blobs) sha256 = download(index, symlinks ? cache_->blob(f.etag) : f.target);
    else remove_leftover_note_of(partial_of(f));
    if (!in_snapshot && symlinks) cache_->link(plan_.commit, f.path, f.etag);
    cache_->write_ref(plan_.source.revision, plan_.commit);
    return finished(f, in_snapshot || in_blobs, sha256);
  }

  std::string hash_of(const fs::path& file) const {
    Sha256 hash;
    read_pieces(file, [&](std::span<const std::byte> bytes) {
      if (cancelled()) fail(ErrorCode::Cancelled, "the download was cancelled");
      hash.add(bytes);
    });
    return hash.hex();
  }

  // A file of a plain folder is whatever lies there under its name.
  static bool is_announced(const PlannedFile& f, const std::string& sha256) {
    if (is_hex(f.etag, 64)) return sha256 == f.etag;
    if (is_hex(f.etag, 40)) return git_blob_id(f.target) == f.etag;
    return true;
  }

  FetchedFile finished(const PlannedFile& f, bool was_present, std::string sha256) const {
    if (sha256.empty()) sha256 = is_hex(f.etag, 64) ? f.etag : hash_of(f.target);
    return {.path = f.path,
            .local = f.target,
            .size = fs::file_size(f.target),
            .sha256 = std::move(sha256),
            .was_present = was_present};
  }

  // Brings the bytes under `name` once they are complete and right. Returns their SHA-256.
  std::string download(size_t index, const fs::path& name) {
    const PlannedFile& f = plan_.files[index];
    AddressBook addresses = address_book(f);
    const bool adopted = cache_ && adopt_foreign(f);
    PartialFile file(partial_of(f), key_of(f), f.size, segment_size(f.size));
    if (adopted && file.have() == 0) {
      file.adopt_front(std::min(f.size, fs::file_size(file.path())));
      meter_.found(index, file.have());
    }
    HashBehind hash(file);
    const uint64_t size = transfer(http_, addresses, file,
                                   {.name = f.path,
                                    .version = f.version,
                                    .parts = std::clamp(options_.parts, 1, 8),
                                    .idle_timeout_s = options_.hub.transfer_timeout_s,
                                    .retry = options_.retry,
                                    .largest = options_.largest_file,
                                    .keep_free = options_.keep_free,
                                    .free_space = [this, &file] { return free_space(file.path().parent_path()); },
                                    .cancelled = [this] { return cancelled(); },
                                    .received = [this, index](int64_t bytes) { meter_.received(index, bytes); },
                                    .refuse = [this, &f](const HttpAnswer& answer) { refuse(f, answer); },
                                    .log = log_});
    meter_.verifying(index);
    std::string sha256 = hash.finish(size);
    file.end_at(size);
    verify(f, file, size, sha256);
    file.commit(name);
    return sha256;
  }

  void verify(const PlannedFile& f, PartialFile& file, uint64_t size, const std::string& sha256) const {
    const auto wrong = [&](const std::string& what) {
      file.discard();
      throw Error(ErrorCode::BadFile, fmt::format("{}: {}; what was received has been deleted", printable(f.path), what),
                  "run the command again; if it fails a second time, the source itself is damaged");
    };
    if (f.size > 0 && size != f.size) wrong(fmt::format("{} bytes were announced and {} came", f.size, size));
    if (is_hex(f.etag, 64) && sha256 != f.etag) wrong(fmt::format("its SHA-256 is {}, {} was announced", sha256, f.etag));
    if (is_hex(f.etag, 40) && !plan_.source.repository.empty())
      if (const std::string id = git_blob_id(file.path()); id != f.etag)
        wrong(fmt::format("its git id is {}, {} was announced", id, f.etag));
  }

  AddressBook address_book(const PlannedFile& f) {
    if (plan_.source.repository.empty()) {
      const RemoteAddress plain{.url = f.url, .token = options_.hub.token_for(f.url)};
      return {plain, [plain] { return plain; }};
    }
    auto resolve = [this, &f] { return resolved(f); };
    return {resolve(), resolve};
  }

  RemoteAddress resolved(const PlannedFile& f) {
    const std::string& revision = plan_.commit.empty() ? plan_.source.revision : plan_.commit;
    const auto found = hub_.metadata(plan_.source.repository, revision, f.path);
    if (!found) {
      if (cache_) cache_->note_absent(plan_.commit, f.path);
      throw Error(ErrorCode::NotFound,
                  fmt::format("{} lists {} but does not have it", plan_.source.repository, printable(f.path)), "try again later");
    }
    if (is_blob_id(found->etag) && is_blob_id(f.etag) && found->etag != f.etag)
      throw Error(ErrorCode::BadFile,
                  fmt::format("the hub reports two different hashes for {}: {} and {}", printable(f.path), f.etag, found->etag),
                  "try again later");
    return {.url = found->url,
            .token = options_.hub.token_for(found->url),
            .signed_for_us = !same_origin(found->url, options_.hub.endpoint)};
  }

  [[noreturn]] void refuse(const PlannedFile& f, const HttpAnswer& answer) const {
    if (!plan_.source.repository.empty() && same_origin(answer.url, options_.hub.endpoint))
      fail_hub(answer, hub_.question(plan_.source.repository, plan_.source.revision, f.path));
    throw Error(ErrorCode::Network, fmt::format("{}: {} ({})", printable(f.path), in_words(answer), parse_url(answer.url).host),
                "try again later");
  }

  // What an old version of the Python library left a day or more ago becomes the beginning of ours.
  bool adopt_foreign(const PlannedFile& f) const {
    const fs::path foreign = cache_->blob(f.etag + ".incomplete"), ours = cache_->partial(f.etag);
    std::error_code failure;
    if (f.size == 0 || fs::exists(ours, failure) || !fs::is_regular_file(foreign, failure) ||
        fs::file_size(foreign, failure) > f.size)
      return false;
    const auto changed = fs::last_write_time(foreign, failure);
    if (failure || fs::file_time_type::clock::now() - changed < kForeignPartialAge) return false;
    fs::rename(foreign, ours, failure);
    return !failure;
  }

  const FetchPlan& plan_;
  const FetchOptions& options_;
  const Log& log_;
  HttpClient http_;
  HubClient hub_;
  FetchMeter meter_;
  std::optional<HubCache> cache_;
  std::atomic<size_t> next_ = 0;
  std::atomic<bool> stop_ = false;
  std::mutex mutex_;
  std::exception_ptr first_error_;
};

}  // namespace

Downloaded fetch(const FetchPlan& plan, const FetchOptions& options, const FetchProgress& progress, const Log& log) {
  return hiding_token(options.hub.token, [&] { return Fetcher(plan, options, progress, log).run(); });
}

Downloaded fetch_source(const Source& source, const FetchOptions& options, const FetchProgress& progress, const Log& log) {
  const FetchPlan plan = plan_fetch(source, options, log);
  log.info("{}: {}", source.text(), plan.reason);
  return fetch(plan, options, progress, log);
}

}  // namespace flux2
