#pragma once

#include <functional>
#include <mutex>
#include <string>

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

}  // namespace flux2
