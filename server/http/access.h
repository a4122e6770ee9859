#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/http/key_limits.h"
#include "server/http/router.h"

namespace flux2 {

// A key as it is stored: only its hash.
struct AccessKey {
  std::string sha256;  // 64 hexadecimal digits
  Scope scope = Scope::Admin;
  std::string name = {};  // for people
  KeyLimits limits = {};
};
AccessKey hashed_key(std::string_view key, Scope scope, std::string name = {});

// Where sign-ins of the page are kept, by the hash of their cookie. Asked for every request of the page, on an I/O thread: an
// implementation answers from memory. Thread-safe.
class Sessions {
 public:
  virtual ~Sessions() = default;
  virtual void add(const std::string& hash, const std::string& key, Scope scope,
                   int64_t created) = 0;  // `key`: the hash of its key
  struct Found {
    Scope scope;
    std::string key;  // the hash of the key it signed in with
  };
  virtual std::optional<Found> find(const std::string& hash, int64_t not_before) = 0;  // created then or later
  virtual void remove(const std::string& hash) = 0;
};

// Sessions that end with the process.
class MemorySessions : public Sessions {
 public:
  void add(const std::string& hash, const std::string& key, Scope scope, int64_t created) override;
  std::optional<Found> find(const std::string& hash, int64_t not_before) override;
  void remove(const std::string& hash) override;

 private:
  struct Session {
    Scope scope;
    std::string key;
    int64_t created;
  };
  std::mutex mutex_;
  std::map<std::string, Session> sessions_;
};

struct AccessOptions {
  std::vector<AccessKey> keys = {};                           // none: nobody needs a key
  std::vector<std::pair<std::string, AccessKey>> users = {};  // names and passwords for /sdapi
  bool loopback = true;                        // the server listens on this machine only: Host is checked against rebinding
  std::vector<std::string> host_names = {};    // allowed besides localhost, 127.0.0.1 and [::1]
  std::vector<std::string> cors_origins = {};  // "https://app.example", or "*"
  bool tls = false;
  KeyLimits limits = {};  // of keys that have none of their own
};

// Who may do what. Refusals are HttpErrors: 401 no or wrong key, 403 not allowed, 421 foreign host, 429 too many wrong keys.
class Access {
 public:
  using Clock = std::function<int64_t()>;  // Unix seconds
  Access(AccessOptions options, Sessions& sessions, Clock clock);

  // The scope of the request. Throws unless it reaches `needed`. `caller` learns who sends it.
  Scope check(const ServerRequest& head, Scope needed, Caller* caller = nullptr);

  // The answer to a CORS preflight of an allowed origin.
  std::optional<HttpResponse> preflight(const ServerRequest& head) const;
  // Headers that every answer to this request needs for CORS.
  Headers cors_headers(const ServerRequest& head) const;

  // 204 with a cookie; without one if nobody needs a key. A session ends with its key.
  HttpResponse sign_in(const ServerRequest& request, std::string_view key);
  HttpResponse sign_out(const ServerRequest& request);

  // Further keys, which may change while the server runs; those of the options stay.
  void set_more_keys(std::vector<AccessKey> keys);
  bool needs_key() const;

 private:
  struct Failures {
    std::deque<int64_t> times;
    int64_t blocked_until = 0;
  };

  void check_host(const ServerRequest& head) const;
  void check_origin(const ServerRequest& head) const;
  bool is_allowed_origin(std::string_view origin) const;
  std::optional<AccessKey> key_of_session(const ServerRequest& head);
  AccessKey known_key(std::string_view key, const std::string& address);  // throws if it is wrong
  AccessKey key_of_basic(std::string_view credentials, const std::string& address);
  std::optional<AccessKey> find_key(const std::string& hash) const;
  [[noreturn]] void refuse_key(const std::string& address);
  void check_blocked(const std::string& address);

  const AccessOptions options_;
  Sessions& sessions_;
  const Clock clock_;
  mutable std::mutex mutex_;  // guards what follows
  std::vector<AccessKey> more_keys_;
  std::map<std::string, Failures> failures_;
};

}  // namespace flux2
