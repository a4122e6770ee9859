#pragma once

#include <vector>

#include "model/block_schedule.h"
#include "weights/named_weights.h"

namespace flux2 {

// Keeps a mapped network within a memory limit: a block's pages are requested while the previous block runs, and released after
// the block has run.
class PageSchedule final : public BlockSchedule {
 public:
  // names[i]: the tensors of block i.
  PageSchedule(const NamedWeights& weights, std::vector<std::vector<std::string>> names)
      : weights_(weights), names_(std::move(names)) {}

  void before(size_t block, Stream&) override {
    for (const std::string& name : names_[(block + 1) % names_.size()]) weights_.want_pages(name);
  }
  void after(size_t block, Stream&) override {
    for (const std::string& name : names_[block]) weights_.forget_pages(name);
  }
  bool replaces_weights(size_t) const override { return false; }  // pages are read again from the file

 private:
  NamedWeights weights_;
  std::vector<std::vector<std::string>> names_;
};

}  // namespace flux2
