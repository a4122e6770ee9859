#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"

// The little SQL that the stores need, over SQLite (sqlite_sql.h) or PostgreSQL. The stores are written once; what differs
// between the two is behind the virtual functions of this header.
namespace flux2 {

// A parameter of a statement.
struct SqlValue {
  enum class Type { Integer, Real, Text } type = Type::Integer;
  int64_t integer = 0;
  double real = 0;
  std::string text = {};
};

// The rows that a statement returns.
class SqlCursor {
 public:
  virtual ~SqlCursor() = default;
  virtual bool next() = 0;  // whether there is another row
  virtual int64_t integer(int column) const = 0;
  virtual double real(int column) const = 0;
  virtual std::string text(int column) const = 0;  // "" for NULL
  virtual int64_t changes() const = 0;             // rows changed, once next() has returned false
};

// A statement with its parameters, which are written as ? and bound in order. It is executed by the first step().
class SqlStatement {
 public:
  SqlStatement(class SqlConnection& connection, std::string sql) : connection_(connection), sql_(std::move(sql)) {}

  SqlStatement& bind(int64_t value);
  SqlStatement& bind(std::string_view text);
  SqlStatement& bind_real(double value);
  bool step();    // whether a row is there to be read
  int64_t run();  // to its end; returns the number of rows changed

  int64_t integer(int column) const { return cursor_->integer(column); }
  double real(int column) const { return cursor_->real(column); }
  std::string text(int column) const { return cursor_->text(column); }

 private:
  SqlConnection& connection_;
  std::string sql_;
  std::vector<SqlValue> values_;
  std::unique_ptr<SqlCursor> cursor_;
};

// What processes tell each other when a transaction is committed.
constexpr const char* kWorkSignal = "work";          // a job waits: its lane, or empty
constexpr const char* kEventSignal = "event";        // an event is stored: its id
constexpr const char* kCancelSignal = "cancel";      // a running job is to stop: its id
constexpr const char* kSkipSignal = "skip";          // a running job is to go on with its next batch: its id
constexpr const char* kProgressSignal = "progress";  // an event that is not stored, as JSON
constexpr const char* kMissedSignal = "missed";      // the connection was lost for a while: signals may be missing

struct SqlSignal {
  std::string kind, text;
};

// Waits for what other processes send. One thread waits; interrupt() may come from any.
class SqlSignals {
 public:
  virtual ~SqlSignals() = default;
  virtual std::vector<SqlSignal> wait(std::chrono::milliseconds at_most) = 0;
  virtual void interrupt() = 0;  // wait() returns now; later calls return at once
};

// The database cannot be reached at present.
struct DatabaseAway : Error {
  using Error::Error;
};

// A connection within one transaction.
class SqlConnection {
 public:
  virtual ~SqlConnection() = default;

  SqlStatement prepare(std::string_view sql) { return {*this, std::string(sql)}; }
  virtual std::unique_ptr<SqlCursor> execute(const std::string& sql, const std::vector<SqlValue>& values) = 0;
  virtual void run(std::string_view sql) = 0;  // statements without parameters or results, separated by semicolons

  // ---- where several transactions may write at the same time; SQLite allows one, so these do nothing there ----

  // The end of a SELECT whose rows nobody else may change until this transaction ends: "FOR UPDATE" or nothing.
  virtual const char* locking() const { return ""; }
  virtual const char* locking_free_ones() const { return ""; }  // the same, and rows that others hold are left out
  // Waits until no other transaction holds this lock, and keeps it to the end.
  enum class Lock { Order, Events, Schema };
  virtual void lock(Lock) {}
  // Tells other processes, when the transaction is committed. The text must be short.
  virtual void notify(std::string_view /*kind*/, std::string_view /*text*/) {}
};

// A database that several threads use.
class SqlDatabase {
 public:
  virtual ~SqlDatabase() = default;

  // The body as one transaction. It runs again if the transaction was in conflict with another one, so it must not change what
  // it captures before its last statement.
  template <class Body>
  auto writing(Body&& body) {
    return in_transaction(Mode::Write, std::forward<Body>(body));
  }
  // The statements of the body see one state of the database and change nothing.
  template <class Body>
  auto reading(Body&& body) {
    return in_transaction(Mode::Read, std::forward<Body>(body));
  }

  // Brings the tables of one area up to date: step i leads from version i to i + 1. The steps are written for SQLite. Throws
  // Incompatible if a newer version of the program has written the tables.
  virtual void migrate(std::string_view area, std::span<const char* const> steps) = 0;

  // Whether the last attempt to reach the database was successful.
  virtual bool is_available() const { return true; }

  // Signals of other processes; nothing if the database has none, so that one must look from time to time.
  virtual std::unique_ptr<SqlSignals> signals() { return nullptr; }
  // Sends a signal by itself. It may get lost.
  virtual void send(std::string_view /*kind*/, std::string_view /*text*/) {}

 protected:
  enum class Mode { Read, Write };
  virtual void transact(Mode mode, const std::function<void(SqlConnection&)>& body) = 0;

 private:
  template <class Body>
  auto in_transaction(Mode mode, Body&& body) {
    using Result = std::invoke_result_t<Body, SqlConnection&>;
    if constexpr (std::is_void_v<Result>) {
      transact(mode, [&](SqlConnection& sql) { body(sql); });
    } else {
      std::optional<Result> result;
      transact(mode, [&](SqlConnection& sql) { result.emplace(body(sql)); });
      return std::move(*result);
    }
  }
};

}  // namespace flux2
