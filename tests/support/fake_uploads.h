#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/fake_hub.h"

namespace flux2::test {

// Lets a FakeHub take uploads as the real one does: large files go to its storage first, small ones lie in the commit. What
// breaks the protocol is answered with 400, and kept in `faults`.
class FakeUploads {
 public:
  static constexpr const char* kToken = "hf_write";

  explicit FakeUploads(FakeHub& hub);

  std::map<std::string, std::string> files() const;  // that were committed
  std::vector<std::string> summaries() const;        // of the commits
  std::vector<std::string> faults() const;
  std::string visibility() const;  // of the repository; empty before it is created

 private:
  std::optional<Reply> answer_hub(const ServedRequest& request);
  std::optional<Reply> answer_storage(const ServedRequest& request);
  Reply create(const ServedRequest& request);
  Reply modes(const ServedRequest& request) const;
  Reply batch(const ServedRequest& request);
  Reply verify(const ServedRequest& request);
  Reply commit(const ServedRequest& request);
  Reply fault(const std::string& what);

  FakeHub& hub_;
  mutable std::mutex mutex_;
  std::map<std::string, std::string> files_;
  std::map<std::string, std::string> objects_;  // of the storage, by hash
  std::vector<std::string> summaries_, faults_;
  std::string visibility_;
};

}  // namespace flux2::test
