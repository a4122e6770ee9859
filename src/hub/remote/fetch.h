#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/log.h"
#include "hub/remote/hub_settings.h"
#include "hub/remote/retry.h"
#include "hub/remote/source.h"

namespace flux2 {

struct FetchOptions {
  HubSettings hub;                  // endpoint, token, cache folder, offline: hub_settings(environment)
  std::filesystem::path local_dir;  // plain files in this folder instead of the shared cache; plain addresses need it
  int parts = 4;                    // ranges of one file asked for at the same time, 1 … 8
  int files = 2;                    // files at the same time, 1 or 2
  RetryRules retry = {};
  std::function<bool()> cancelled = {};  // asked often, from several threads; true ends the fetch with Cancelled

  // Free bytes of the file system a folder lies on.
  std::function<uint64_t(const std::filesystem::path&)> free_space = {};  // empty: ask the system
};

// How far a fetch is. Told at most four times a second, by one thread at a time, and once at the end.
struct FetchStatus {
  std::string file;                         // one that is under way
  uint64_t file_bytes = 0, file_total = 0;  // of it; a total of 0 is not known
  uint64_t bytes = 0, total = 0;            // of all files, those already here included
  int files_done = 0, files = 0;
  double bytes_per_s = 0;  // over the last seconds
  double eta_s = -1;       // negative: not known
  bool verifying = false;  // the bytes of `file` are here and are being checked
};
using FetchProgress = std::function<void(const FetchStatus&)>;

// A file that would be fetched: where from, where to, and whether it is here already.
struct PlannedFile {
  std::string path;  // in the repository; the file's name for a plain address
  std::string url;
  std::filesystem::path target;  // where it will be found
  uint64_t size = 0;             // 0: not told
  std::string etag;              // SHA-256 (64 digits) or git blob id (40); else the server's own mark, or empty
  bool present = false;
};

struct FetchPlan {
  Source source;
  std::string commit;          // what the revision stands for; empty for a plain address
  std::string licence;         // as the repository's card says; empty: not told
  bool gated = false;          // files come only to accounts that accepted the licence
  std::string reason;          // a sentence: which files were chosen and why
  std::filesystem::path root;  // the snapshot, or the plain folder
  std::vector<PlannedFile> files;
  bool from_cache = false;  // offline, or the hub could not be reached: what lies in the cache

  uint64_t total_bytes() const;
  uint64_t missing_bytes() const;  // what partial files hold already is not taken off
};

struct FetchedFile {
  std::string path;
  std::filesystem::path local;
  uint64_t size = 0;
  std::string sha256;
  bool was_present = false;  // nothing was transferred
};

struct Downloaded {
  std::filesystem::path root;  // the snapshot, or the plain folder
  std::vector<FetchedFile> files;
  std::string repository, revision, commit;  // empty for a plain address
  std::string url;                           // of a plain address
  std::string licence;
  bool gated = false;
  std::string reason;
};

// Asks the hub what a source consists of and chooses files; transfers none. Offline, or when the hub cannot be reached
// (a warning says so), the answer is made from the cache; NotFound when that holds nothing of it.
FetchPlan plan_fetch(const Source& source, const FetchOptions& options, const Log& log = {});

// Brings what a plan misses, checks size and hash of each file and gives it its name. Interrupted in whatever way, the
// next fetch of the same source goes on from the bytes that are there.
Downloaded fetch(const FetchPlan& plan, const FetchOptions& options, const FetchProgress& progress = {}, const Log& log = {});

Downloaded fetch_source(const Source& source, const FetchOptions& options, const FetchProgress& progress = {},
                        const Log& log = {});

}  // namespace flux2
