#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/store/sql.h"

struct pg_conn;
struct pg_result;

// Only postgres_*.cpp see libpq.
namespace flux2 {

// The transaction was in conflict with another one (a deadlock, a serialization failure): it may succeed when it is repeated.
struct SqlConflict : Error {
  using Error::Error;
};

// Where PostgreSQL listens. The password is never part of a message.
class PostgresAddress {
 public:
  explicit PostgresAddress(const std::string& url);  // throws InvalidArgument

  const std::string& url() const { return url_; }      // with the password
  const std::string& shown() const { return shown_; }  // "database flux2 at host:5432"

 private:
  std::string url_, shown_;
};

// One connection. Not thread-safe.
class PostgresConnection : public SqlConnection {
 public:
  // Throws DatabaseAway if the server does not answer, InvalidArgument if it is there and refuses us (a wrong password, an
  // unknown database). `origin` is this process's name in notifications.
  PostgresConnection(const PostgresAddress& address, std::string origin);

  std::unique_ptr<SqlCursor> execute(const std::string& sql, const std::vector<SqlValue>& values) override;
  void run(std::string_view sql) override;
  const char* locking() const override { return "FOR UPDATE"; }
  const char* locking_free_ones() const override { return "FOR UPDATE SKIP LOCKED"; }
  void lock(Lock lock) override;
  void notify(std::string_view kind, std::string_view text) override;

  // A transaction that writes leaves its number in the row of its connection, so that another connection can find out whether
  // it was committed. (txid_status() is no help: after a crash, PostgreSQL may give the same number to another transaction.)
  void prepare_database();  // creates that table
  void begin_reading();
  void begin_writing();
  void commit();
  void roll_back() noexcept;
  void close() { handle_.reset(); }  // it has failed
  struct Writer {
    std::string connection, transaction;
  };
  const Writer& writer() const { return writer_; }  // of the transaction that began last
  bool was_committed(const Writer& writer);         // waits until it has ended

  bool is_alive() const;
  pg_conn* handle() const { return handle_.get(); }
  std::string quoted(std::string_view text) const;  // as a literal

  // What processes send each other: "ORIGIN KIND TEXT" on one channel.
  static constexpr const char* kChannel = "flux2";

 private:
  struct Close {
    void operator()(pg_conn* handle) const;
  };
  struct Clear {
    void operator()(pg_result* result) const;
  };
  using Result = std::unique_ptr<pg_result, Clear>;

  Result checked(pg_result* result) const;
  [[noreturn]] void refuse(const pg_result* result) const;

  const PostgresAddress& address_;
  std::string origin_;
  Writer writer_;
  int64_t transactions_ = 0;
  std::unique_ptr<pg_conn, Close> handle_;
};

}  // namespace flux2
