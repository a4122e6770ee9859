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
  std::string token;           // that goes with it; empty: none
  bool signed_for_us = false;  // by the hub for a storage host, for minutes: when it is refused, ask for another
};

// The address the bytes of a file come from, shared by the threads that fetch its parts.
class AddressBook {
 public:
  AddressBook(RemoteAddress first, std::function<RemoteAddress()> ask_again)
      : address_(std::move(first)), ask_again_(std::move(ask_again)) {}

  RemoteAddress current() const {
    const std::lock_guard lock(mutex_);
    return address_;
  }

  // Asks for a new address, unless another thread has done so since `refused` was handed out.
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
  std::string name;  // of the file, for messages
  int parts = 4;     // segments under way at the same time
  double idle_timeout_s = 10;
  RetryRules retry = {};
  std::function<bool()> cancelled = {};
  std::function<void(int64_t)> received = {};          // bytes more in place; fewer, when a server makes us start again
  std::function<void(const HttpAnswer&)> refuse = {};  // throws what an answer means that no retry will better
  Log log = {};
};

// How long a segment is: short enough that what waits to be hashed stays in memory, long enough that asking costs nothing.
uint64_t segment_size(uint64_t file_size);

// Brings the bytes a partial file misses, and asks for no other, while the server honours ranges; from one that does not,
// the whole file. Several parts at a time, each tried again as often as it makes progress. Afterwards the file is
// complete, though not yet verified. Returns its size.
uint64_t transfer(const HttpClient& http, AddressBook& addresses, PartialFile& file, const TransferSettings& settings);

}  // namespace flux2
