#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/limits.h"
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
  std::function<bool()> cancelled = {};  // called often, from several threads; returning true ends the download with Cancelled

  uint64_t largest_file = ProcessLimits{}.download_bytes;  // also of a file whose size the server does not tell
  uint64_t keep_free = uint64_t{1} << 30;                  // bytes of the disk that a file of unknown size leaves

  // Free bytes of the file system a folder lies on.
  std::function<uint64_t(const std::filesystem::path&)> free_space = {};  // empty: ask the system
};

// The progress of a download. Reported at most four times a second, by one thread at a time, and once at the end.
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

// A file to download: from where, to where, and whether it is already present.
struct PlannedFile {
  std::string path;  // in the repository; the file's name for a plain address
  std::string url;
  std::filesystem::path target;  // where it will be found
  uint64_t size = 0;             // 0: not told
  std::string etag;              // SHA-256 (64 digits) or git blob id (40); else the server's own mark, or empty
  bool present = false;
  std::string version = {};  // of a file at a plain address, for requests of its parts: see version_of() in net/http.h
};

struct FetchPlan {
  Source source;
  std::string commit;          // what the revision stands for; empty for a plain address
  std::string licence;         // as the repository's card says; empty: not told
  bool gated = false;          // only accounts that accepted the licence can download it
  std::string reason;          // a sentence: which files were chosen and why
  std::filesystem::path root;  // the snapshot, or the plain folder
  std::vector<PlannedFile> files;
  bool from_cache = false;  // offline, or the hub could not be reached: based on the cache

  uint64_t total_bytes() const;
  uint64_t missing_bytes() const;  // bytes in partial files are not subtracted
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

// Asks the hub what a source contains and chooses files, without downloading any. If offline, or if the hub cannot be reached
// (with a warning), the plan is based on the cache; throws NotFound if the cache contains nothing of it.
FetchPlan plan_fetch(const Source& source, const FetchOptions& options, const Log& log = {});

// Downloads the missing files of a plan, checks size and hash of each and gives it its final name. After any interruption, the
// next download of the same source continues with the missing bytes.
Downloaded fetch(const FetchPlan& plan, const FetchOptions& options, const FetchProgress& progress = {}, const Log& log = {});

Downloaded fetch_source(const Source& source, const FetchOptions& options, const FetchProgress& progress = {},
                        const Log& log = {});

}  // namespace flux2
