#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "server/blobs/s3_place.h"
#include "tests/support/http_server.h"

namespace flux2::test {

// A small S3-compatible store in this process: one bucket, "images". It checks that requests are signed, not the signature
// itself; scripts/check-clients.sh does that with another implementation.
class FakeS3 {
 public:
  FakeS3() : server_([this](const ServedRequest& request) { return answer(request); }) {}

  S3Place place(const std::string& address = "s3://images/some/place") const {
    const std::map<std::string, std::string> variables = {{"AWS_ACCESS_KEY_ID", "the-key"},
                                                          {"AWS_SECRET_ACCESS_KEY", "the-secret"},
                                                          {"AWS_REGION", "eu-north-1"},
                                                          {"AWS_ENDPOINT_URL", server_.url()}};
    return s3_place(address, [&](const char* name) -> const char* {
      const auto found = variables.find(name);
      return found == variables.end() ? nullptr : found->second.c_str();
    });
  }

  struct Object {
    std::string bytes, type, modified = "2020-01-01T00:00:00.000Z";
  };
  std::map<std::string, Object> objects() const {
    const std::lock_guard lock(mutex_);
    return objects_;
  }
  void add(const std::string& key, Object object) {
    const std::lock_guard lock(mutex_);
    objects_[key] = std::move(object);
  }
  void remove(const std::string& key) {
    const std::lock_guard lock(mutex_);
    objects_.erase(key);
  }
  void fail_next(int times, int status) {
    const std::lock_guard lock(mutex_);
    failures_ = times, failure_ = status;
  }
  HttpServer& server() { return server_; }

 private:
  Reply answer(const ServedRequest& request);
  Reply list(const std::string& target) const;

  mutable std::mutex mutex_;
  std::map<std::string, Object> objects_;
  int failures_ = 0, failure_ = 503;
  HttpServer server_;  // last: it uses the others
};

}  // namespace flux2::test
