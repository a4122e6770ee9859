#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "base/log.h"
#include "server/blobs/blob_store.h"
#include "server/blobs/s3_place.h"

namespace flux2 {

struct S3Options {
  S3Place place;
  std::filesystem::path cache;        // a folder for local copies
  uint64_t cache_bytes = 4ull << 30;  // that they may take
  HttpSettings http = {};
  Log log = {};
  int tries = 5;                               // of a request, when the network or the store fails
  std::chrono::milliseconds first_pause{250};  // before the second one; then it doubles
  int page = 1000;                             // objects in one answer of a listing
};

// Blobs as objects of an S3-compatible store. Every request is signed. Objects that were stored or fetched stay in a local cache.
std::unique_ptr<BlobStore> open_s3_blobs(S3Options options);

}  // namespace flux2
