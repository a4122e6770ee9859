#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <string>
#include <utility>

#include "tensor/tensor.h"

namespace flux2 {

// A least-recently-used cache of tensors by name, with a limit in bytes.
class TensorCache {
 public:
  explicit TensorCache(int64_t limit) : limit_(limit) {}

  // Undefined if it is not in the cache. Counts as a use.
  Tensor find(const std::string& key) {
    const auto found = by_key_.find(key);
    ++(found == by_key_.end() ? misses_ : hits_);
    if (found == by_key_.end()) return {};
    entries_.splice(entries_.end(), entries_, found->second);
    return found->second->second;
  }
  bool contains(const std::string& key) const { return by_key_.contains(key); }

  // A tensor larger than the limit is not stored.
  void add(const std::string& key, const Tensor& value) {
    if (const auto known = by_key_.find(key); known != by_key_.end()) remove(known->second);
    if (value.bytes() > limit_) return;
    shrink(limit_ - value.bytes());
    by_key_[key] = entries_.emplace(entries_.end(), key, value);
    bytes_ += value.bytes();
  }

  void clear() { shrink(0); }
  void set_limit(int64_t bytes) {
    limit_ = bytes;
    shrink(bytes);
  }
  int64_t limit() const { return limit_; }
  int64_t bytes() const { return bytes_; }
  size_t size() const { return entries_.size(); }
  int64_t hits() const { return hits_; }  // of find()
  int64_t misses() const { return misses_; }

 private:
  using Entries = std::list<std::pair<std::string, Tensor>>;

  void remove(Entries::iterator entry) {
    bytes_ -= entry->second.bytes();
    by_key_.erase(entry->first);
    entries_.erase(entry);
  }
  void shrink(int64_t down_to) {
    while (bytes_ > down_to) remove(entries_.begin());
  }

  int64_t limit_, bytes_ = 0, hits_ = 0, misses_ = 0;
  Entries entries_;  // the one used last is at the end
  std::map<std::string, Entries::iterator> by_key_;
};

}  // namespace flux2
