#include "server/store/sqlite_sql.h"

#include <chrono>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "hub/registry/database.h"

namespace flux2 {

namespace {

// Runs `body` again while another process holds the file, for a few seconds. SQLite itself waits for locks, but it gives up at
// once where waiting could be a deadlock, for instance while another process recovers the log after a crash.
template <class Body>
void retried_while_busy(Body&& body) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  for (;;) {
    try {
      body();
      return;
    } catch (const DatabaseBusy&) {
      if (std::chrono::steady_clock::now() > until) throw;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
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

// Statements that were used before: to prepare one takes longer than most of them run. One thread at a time.
class PreparedStatements {
 public:
  explicit PreparedStatements(const Database& database) : database_(database) {}

  Statement take(const std::string& sql) {
    auto found = free_.extract(sql);
    return found ? std::move(found.mapped()) : database_.prepare(sql);
  }
  void give_back(const std::string& sql, Statement statement) {
    statement.reset();
    if (free_.size() >= kMost) free_.clear();  // some have numbers in their text
    free_.insert_or_assign(sql, std::move(statement));
  }

 private:
  static constexpr size_t kMost = 200;

  const Database& database_;
  std::unordered_map<std::string, Statement> free_;
};

class SqliteCursor : public SqlCursor {
 public:
  SqliteCursor(const Database& database, PreparedStatements& statements, const std::string& sql,
               const std::vector<SqlValue>& values)
      : database_(database), statements_(statements), sql_(sql), statement_(statements.take(sql)) {
    for (const SqlValue& value : values) switch (value.type) {
        case SqlValue::Type::Integer: statement_.bind(value.integer); break;
        case SqlValue::Type::Real: statement_.bind_real(value.real); break;
        case SqlValue::Type::Text: statement_.bind(value.text); break;
      }
  }
  SqliteCursor(const SqliteCursor&) = delete;
  SqliteCursor& operator=(const SqliteCursor&) = delete;
  ~SqliteCursor() override {
    try {
      statements_.give_back(sql_, std::move(statement_));
    } catch (const std::exception&) {  // no memory to keep it: it is prepared again
    }
  }

  bool next() override {
    if (statement_.step()) return true;
    changes_ = database_.changes();
    return false;
  }
  int64_t integer(int column) const override { return statement_.integer(column); }
  double real(int column) const override { return statement_.real(column); }
  std::string text(int column) const override { return statement_.text(column); }
  int64_t changes() const override { return changes_; }

 private:
  const Database& database_;
  PreparedStatements& statements_;
  std::string sql_;
  Statement statement_;
  int64_t changes_ = 0;
};

class SqliteConnection : public SqlConnection {
 public:
  SqliteConnection(const Database& database, PreparedStatements& statements) : database_(database), statements_(statements) {}

  std::unique_ptr<SqlCursor> execute(const std::string& sql, const std::vector<SqlValue>& values) override {
    return std::make_unique<SqliteCursor>(database_, statements_, sql, values);
  }
  void run(std::string_view sql) override { database_.run(sql); }

 private:
  const Database& database_;
  PreparedStatements& statements_;
};

class SqliteDatabase : public SqlDatabase {
 public:
  explicit SqliteDatabase(const std::filesystem::path& path) : writer_(path), reader_(path) {}

  void migrate(std::string_view area, std::span<const char* const> steps) override {
    const std::lock_guard lock(writer_.mutex);
    retried_while_busy([&] { flux2::migrate(writer_.database, area, steps); });
  }

 protected:
  void transact(Mode mode, const std::function<void(SqlConnection&)>& body) override {
    Part& part = mode == Mode::Read ? reader_ : writer_;
    const std::lock_guard lock(part.mutex);
    SqliteConnection connection(part.database, part.statements);
    retried_while_busy([&] {
      if (mode == Mode::Read) {
        const ReadSnapshot snapshot(part.database);
        body(connection);
      } else {
        Transaction transaction(part.database);
        body(connection);
        transaction.commit();
      }
    });
  }

 private:
  struct Part {
    explicit Part(const std::filesystem::path& path) : database(path, Database::Access::Write) {}

    std::mutex mutex;
    Database database;
    PreparedStatements statements{database};
  };
  Part writer_, reader_;  // those who read do not wait for those who write
};

}  // namespace

std::shared_ptr<SqlDatabase> open_sqlite(const std::filesystem::path& path) { return std::make_shared<SqliteDatabase>(path); }

}  // namespace flux2
