#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "base/log.h"
#include "hub/remote/partial_file.h"
#include "hub/remote/retry.h"
#include "net/http.h"

namespace flux2 {

struct RemoteAddress {
  std::string url;
  std::string token;  // that goes with it; empty: none
  // A URL of a storage host, signed by the hub and valid for minutes: if it is rejected, request another.
  bool signed_for_us = false;
};

// The URL that the bytes of a file come from, shared by the threads that download its segments.
class AddressBook {
 public:
  AddressBook(RemoteAddress first, std::function<RemoteAddress()> ask_again)
      : address_(std::move(first)), ask_again_(std::move(ask_again)) {}

  RemoteAddress current() const {
    const std::lock_guard lock(mutex_);
    return address_;
  }

  // Requests a new URL, unless another thread has done so since `refused` was returned.
  void renew(const std::string& refused) {
    const std::lock_guard lock(mutex_);
    if (address_.url == refused) address_ = ask_again_();
  }

 private:
  mutable std::mutex mutex_;
  RemoteAddress address_;
  std::function<RemoteAddress()> ask_again_;
};

struct TransferSettings {
  std::string name;     // of the file, for messages
  std::string version;  // of the file, so that no parts of another one are received; empty: not known, or its hash is checked
  int parts = 4;        // segments under way at the same time
  double idle_timeout_s = 10;
  RetryRules retry = {};
  // A server that does not tell the size of a file could send bytes until the disk is full.
  uint64_t largest = UINT64_MAX;              // bytes of the file
  uint64_t keep_free = 0;                     // bytes of the disk
  std::function<uint64_t()> free_space = {};  // of the disk; empty: not checked
  std::function<bool()> cancelled = {};
  std::function<void(int64_t)> received = {};          // additional bytes received; negative if the download has to start over
  std::function<void(const HttpAnswer&)> refuse = {};  // throws the error for an answer that no retry can fix
  Log log = {};
};

// The length of a segment: short enough that data waiting to be hashed stays in memory, long enough that requests cost nothing.
uint64_t segment_size(uint64_t file_size);

// Downloads the missing bytes of a partial file and requests no others if the server supports ranges; otherwise it downloads the
// whole file. Several segments are downloaded at a time, and each is retried as long as it makes progress. Afterwards the file is
// complete, though not yet verified. Returns its size. If the file changes on the server meanwhile, it is downloaded from its
// first byte.
uint64_t transfer(const HttpClient& http, AddressBook& addresses, PartialFile& file, const TransferSettings& settings);

}  // namespace flux2
