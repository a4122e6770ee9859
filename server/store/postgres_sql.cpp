#include "server/store/postgres_sql.h"

#include <fmt/format.h>

#include <optional>
#include <thread>

#include "server/store/ids.h"
#include "server/store/postgres_pool.h"
#include "server/store/postgres_signals.h"
#include "server/store/postgres_text.h"

namespace flux2 {

namespace {

constexpr int kConflictsAllowed = 100;
constexpr auto kFateEvery = std::chrono::milliseconds(50);
constexpr size_t kLongestSignal = 7900;  // PostgreSQL allows 8000 bytes

class PostgresDatabase : public SqlDatabase {
 public:
  PostgresDatabase(const std::string& address, PostgresOptions options)
      : options_(options), pool_(std::make_shared<PostgresPool>(PostgresAddress(address), new_id(), options.connections)) {
    // A wrong password is reported at once; a server that is still starting is waited for.
    for (const auto until = deadline();;) {
      try {
        pool_->connect()->prepare_database();
        return;
      } catch (const DatabaseAway&) {
        if (PostgresPool::Clock::now() >= until) throw;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
  }

  void migrate(std::string_view area, std::span<const char* const> steps) override {
    const auto newest = static_cast<int64_t>(steps.size());
    writing([&](SqlConnection& sql) {
      sql.lock(SqlConnection::Lock::Schema);
      sql.run(as_postgres_schema("CREATE TABLE IF NOT EXISTS schema_versions (area TEXT PRIMARY KEY, version INTEGER NOT NULL)"));
      SqlStatement row = sql.prepare("SELECT version FROM schema_versions WHERE area = ?");
      const int64_t found = row.bind(area).step() ? row.integer(0) : 0;
      if (found == newest) return;
      if (found < 0 || found > newest)
        throw Error(ErrorCode::Incompatible,
                    fmt::format("the database was written by a newer version of this program ({} {}; this version supports {})",
                                area, found, newest),
                    "use that version, or another database");
      for (int64_t i = found; i < newest; ++i) sql.run(as_postgres_schema(steps[static_cast<size_t>(i)]));
      sql.prepare("INSERT INTO schema_versions VALUES (?, ?) ON CONFLICT (area) DO UPDATE SET version = excluded.version")
          .bind(area)
          .bind(newest)
          .run();
    });
  }

  bool is_available() const override { return pool_->is_available(); }
  std::unique_ptr<SqlSignals> signals() override { return open_postgres_signals(pool_); }

  void send(std::string_view kind, std::string_view text) override {
    const std::string message = fmt::format("{} {} {}", pool_->origin(), kind, text);
    if (message.size() > kLongestSignal || !pool_->is_available()) return;
    try {
      const auto connection = pool_->take(PostgresPool::Clock::now());
      // It need not survive a crash, so it does not wait for the disk.
      connection->run(fmt::format("BEGIN; SET LOCAL synchronous_commit = off; NOTIFY {}, {}; COMMIT",
                                  PostgresConnection::kChannel, connection->quoted(message)));
    } catch (const Error&) {  // the next one may arrive
    }
  }

 protected:
  void transact(Mode mode, const std::function<void(SqlConnection&)>& body) override {
    const auto until = deadline();
    for (int conflicts = 0; conflicts < kConflictsAllowed;) {
      std::optional<PostgresConnection::Writer> in_doubt;  // the transaction whose COMMIT was not answered
      try {
        const auto connection = pool_->take(until);
        if (run(*connection, mode, body, in_doubt)) return;
        ++conflicts;
        if (PostgresPool::Clock::now() >= until) break;
      } catch (const DatabaseAway&) {
        pool_->forget_idle();
        if (PostgresPool::Clock::now() >= until) throw;
      }
      if (in_doubt && was_committed(*in_doubt, until)) return;
    }
    throw DatabaseAway(ErrorCode::Network, "the database is too busy for this change", "try again");
  }

 private:
  PostgresPool::Clock::time_point deadline() const { return PostgresPool::Clock::now() + options_.patience; }

  // False: it was in conflict with another transaction and has changed nothing.
  static bool run(PostgresConnection& connection, Mode mode, const std::function<void(SqlConnection&)>& body,
                  std::optional<PostgresConnection::Writer>& in_doubt) {
    try {
      if (mode == Mode::Read) connection.begin_reading();
      else connection.begin_writing();
      body(connection);
      if (mode == Mode::Write) in_doubt = connection.writer();
      connection.commit();
      in_doubt.reset();
      return true;
    } catch (const SqlConflict&) {
      in_doubt.reset();
      connection.roll_back();
      return false;
    } catch (const DatabaseAway&) {
      connection.close();
      throw;
    } catch (...) {
      in_doubt.reset();
      connection.roll_back();
      throw;
    }
  }

  // What became of a transaction whose answer did not arrive. Repeating it blindly could apply it twice.
  bool was_committed(const PostgresConnection::Writer& writer, PostgresPool::Clock::time_point until) {
    for (;;) {
      try {
        const auto connection = pool_->take(until);
        return connection->was_committed(writer);
      } catch (const DatabaseAway&) {
        pool_->forget_idle();
      } catch (const SqlConflict&) {  // it is still under way
      }
      if (PostgresPool::Clock::now() >= until)
        throw DatabaseAway(ErrorCode::Network, "the database did not say whether a change was stored",
                           "look before trying again");
      std::this_thread::sleep_for(kFateEvery);
    }
  }

  PostgresOptions options_;
  std::shared_ptr<PostgresPool> pool_;
};

}  // namespace

bool postgres_available() { return true; }

std::shared_ptr<SqlDatabase> open_postgres(const std::string& address, PostgresOptions options) {
  return std::make_shared<PostgresDatabase>(address, options);
}

}  // namespace flux2
