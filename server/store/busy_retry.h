#pragma once

#include <chrono>
#include <thread>

#include "hub/registry/database.h"

namespace flux2 {

// Runs `body` again while another process holds the file, for a few seconds. SQLite itself waits for locks, but it gives up at
// once where waiting could be a deadlock, for instance while another process recovers the log after a crash.
template <class Body>
auto retried_while_busy(Body&& body) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  for (;;) {
    try {
      return body();
    } catch (const DatabaseBusy&) {
      if (std::chrono::steady_clock::now() > until) throw;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

// The body as one transaction that writes.
template <class Body>
auto in_transaction(const Database& database, Body&& body) {
  return retried_while_busy([&] {
    Transaction transaction(database);
    if constexpr (std::is_void_v<decltype(body())>) {
      body();
      transaction.commit();
    } else {
      auto result = body();
      transaction.commit();
      return result;
    }
  });
}

// Statements that read see one state of the file while this exists.
class ReadSnapshot {
 public:
  explicit ReadSnapshot(const Database& database) : database_(database) { database_.run("BEGIN"); }
  ReadSnapshot(const ReadSnapshot&) = delete;
  ReadSnapshot& operator=(const ReadSnapshot&) = delete;
  ~ReadSnapshot() {
    try {
      database_.run("COMMIT");
    } catch (const std::exception&) {  // nothing was written
    }
  }

 private:
  const Database& database_;
};

}  // namespace flux2
