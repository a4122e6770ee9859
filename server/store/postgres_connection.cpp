#include "server/store/postgres_connection.h"

#include <fmt/format.h>
#include <libpq-fe.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>

#include "base/text.h"
#include "server/store/ids.h"
#include "server/store/postgres_text.h"

namespace flux2 {

namespace {

// A process that stands still within a transaction must not hold its locks for ever, and nobody waits for locks without end.
constexpr const char* kSessionSettings =
    "SET idle_in_transaction_session_timeout = '10s'; SET lock_timeout = '20s'; SET standard_conforming_strings = on";

// Keys of advisory locks, which all programs on one database share; these are ours.
constexpr int64_t kLockBase = 0x666c757832000000;  // "flux2"

struct FreeInfo {
  void operator()(PQconninfoOption* info) const { PQconninfoFree(info); }
};

std::string one_line(const char* message) {
  std::string text = message ? message : "";
  std::replace(text.begin(), text.end(), '\n', ' ');
  return std::string(trimmed(text));
}

// Rows are complete when the statement returns.
class PostgresCursor : public SqlCursor {
 public:
  explicit PostgresCursor(std::shared_ptr<pg_result> result) : result_(std::move(result)), rows_(PQntuples(result_.get())) {}

  bool next() override { return ++row_ < rows_; }
  int64_t integer(int column) const override {
    const char* text = PQgetvalue(result_.get(), row_, column);
    if (*text == 't') return 1;  // a truth value
    int64_t value = 0;
    std::from_chars(text, text + PQgetlength(result_.get(), row_, column), value);
    return value;
  }
  double real(int column) const override { return std::strtod(PQgetvalue(result_.get(), row_, column), nullptr); }
  std::string text(int column) const override {
    return {PQgetvalue(result_.get(), row_, column), static_cast<size_t>(PQgetlength(result_.get(), row_, column))};
  }
  int64_t changes() const override { return std::atoll(PQcmdTuples(result_.get())); }

 private:
  std::shared_ptr<pg_result> result_;
  int rows_, row_ = -1;
};

}  // namespace

PostgresAddress::PostgresAddress(const std::string& url) : url_(url) {
  const std::unique_ptr<PQconninfoOption, FreeInfo> info(PQconninfoParse(url.c_str(), nullptr));
  std::string host, port, database;
  for (const PQconninfoOption* option = info.get(); option && option->keyword; ++option) {
    if (!option->val) continue;
    const std::string_view keyword = option->keyword;
    if (keyword == "host" || (keyword == "hostaddr" && host.empty())) host = option->val;
    if (keyword == "port") port = option->val;
    if (keyword == "dbname") database = option->val;
  }
  // A password whose special characters are not encoded ends up in the host, the port or the name: it must not be shown.
  const bool strange = host.find('@') != std::string::npos || database.find_first_of("@/:") != std::string::npos ||
                       port.find_first_not_of("0123456789,") != std::string::npos;
  if (!info || strange || !is_postgres_address(url))
    throw Error(ErrorCode::InvalidArgument, "the address of the database cannot be read",
                "write postgres://USER@HOST:PORT/DATABASE, and characters such as @ : / in a password as %40 %3A %2F");
  shown_ = "the PostgreSQL database";
  if (!database.empty()) shown_ += " " + printable(database);
  if (!host.empty()) shown_ += fmt::format(" at {}{}", printable(host), port.empty() ? "" : ":" + printable(port));
}

void PostgresConnection::Close::operator()(pg_conn* handle) const { PQfinish(handle); }
void PostgresConnection::Clear::operator()(pg_result* result) const { PQclear(result); }

PostgresConnection::PostgresConnection(const PostgresAddress& address, std::string origin)
    : address_(address), origin_(std::move(origin)), writer_{new_id(), ""} {
  // What the address says comes after our defaults and overrides them. Dead peers are noticed within about 20 s.
  const std::array<const char*, 9> keywords = {"connect_timeout",  "keepalives_idle",  "keepalives_interval",
                                               "keepalives_count", "tcp_user_timeout", "fallback_application_name",
                                               "dbname",           "client_encoding",  nullptr};
  const std::array<const char*, 9> values = {"5", "10", "3", "3", "20000", "flux2", address.url().c_str(), "UTF8", nullptr};
  handle_.reset(PQconnectdbParams(keywords.data(), values.data(), 1));
  if (!handle_) throw std::bad_alloc();
  if (PQstatus(handle_.get()) != CONNECTION_OK) {
    const std::string reason = one_line(PQerrorMessage(handle_.get()));
    const PGPing state = PQpingParams(keywords.data(), values.data(), 1);
    if (state == PQPING_OK || state == PQPING_NO_ATTEMPT)
      throw Error(ErrorCode::InvalidArgument, fmt::format("{} cannot be used: {}", address.shown(), reason),
                  "check the user, the password and the name of the database");
    throw DatabaseAway(ErrorCode::Network, fmt::format("{} does not answer: {}", address.shown(), reason),
                       "check that PostgreSQL runs and can be reached");
  }
  PQsetNoticeProcessor(
      handle_.get(), [](void*, const char*) {}, nullptr);  // "relation already exists, skipping" and the like
  run(kSessionSettings);
}

bool PostgresConnection::is_alive() const { return handle_ && PQstatus(handle_.get()) == CONNECTION_OK; }

PostgresConnection::Result PostgresConnection::checked(pg_result* raw) const {
  Result result(raw);
  const ExecStatusType status = PQresultStatus(raw);
  if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) refuse(raw);
  return result;
}

void PostgresConnection::refuse(const pg_result* result) const {
  const char* field = result ? PQresultErrorField(result, PG_DIAG_SQLSTATE) : nullptr;
  const std::string_view state = field ? field : "";
  const std::string reason =
      one_line(field ? PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY) : PQerrorMessage(handle_.get()));
  const std::string& shown = address_.shown();
  // Serialization failure, deadlock, a lock that nobody gave back in time.
  if (state == "40001" || state == "40P01" || state == "55P03")
    throw SqlConflict(ErrorCode::CannotWrite, fmt::format("{} is busy: {}", shown, reason), "try again");
  // Connection errors, a server that stops or starts, and a standby that only reads, which a new connection may avoid.
  if (state.empty() || !is_alive() || state.starts_with("08") || state.starts_with("57P") || state == "25006" || state == "25P03")
    throw DatabaseAway(ErrorCode::Network, fmt::format("{} has closed the connection: {}", shown, reason),
                       "check that PostgreSQL runs and can be reached");
  if (state.starts_with("53") || state.starts_with("58") || state == "42501")
    throw Error(ErrorCode::CannotWrite, fmt::format("{} cannot be written: {}", shown, reason),
                "check its disk, its limits and the rights of the user");
  throw Error(ErrorCode::Internal, fmt::format("{}: {} ({})", shown, reason, state));
}

std::unique_ptr<SqlCursor> PostgresConnection::execute(const std::string& sql, const std::vector<SqlValue>& values) {
  std::vector<std::string> texts;
  texts.reserve(values.size());
  for (const SqlValue& value : values) switch (value.type) {
      case SqlValue::Type::Integer: texts.push_back(std::to_string(value.integer)); break;
      case SqlValue::Type::Real: texts.push_back(fmt::format("{}", value.real)); break;  // shortest that reads back
      case SqlValue::Type::Text: texts.push_back(as_postgres_text(value.text)); break;
    }
  std::vector<const char*> pointers;
  for (const std::string& text : texts) pointers.push_back(text.c_str());
  Result result = checked(PQexecParams(handle_.get(), with_numbered_parameters(sql).c_str(), static_cast<int>(pointers.size()),
                                       nullptr, pointers.data(), nullptr, nullptr, 0));
  return std::make_unique<PostgresCursor>(std::shared_ptr<pg_result>(result.release(), Clear()));
}

void PostgresConnection::run(std::string_view sql) { checked(PQexec(handle_.get(), std::string(sql).c_str())); }

void PostgresConnection::lock(Lock lock) {
  prepare("SELECT pg_advisory_xact_lock(?)").bind(kLockBase + static_cast<int64_t>(lock)).run();
}

void PostgresConnection::notify(std::string_view kind, std::string_view text) {
  prepare("SELECT pg_notify(?, ?)").bind(kChannel).bind(fmt::format("{} {} {}", origin_, kind, text)).run();
}

void PostgresConnection::begin_reading() { run("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"); }

void PostgresConnection::prepare_database() {
  constexpr int64_t kDayMs = 86'400'000;
  run("BEGIN");
  lock(Lock::Schema);
  run(as_postgres_schema(
      "CREATE TABLE IF NOT EXISTS writers (connection TEXT PRIMARY KEY, number TEXT NOT NULL, at INTEGER NOT NULL)"));
  prepare("DELETE FROM writers WHERE at < ?").bind(now_ms() - kDayMs).run();  // of connections that ended long ago
  run("COMMIT");
}

// Within a transaction that locks what it changes, each statement should see what others have committed before it.
void PostgresConnection::begin_writing() {
  writer_.transaction = std::to_string(++transactions_);
  run(
      fmt::format("BEGIN ISOLATION LEVEL READ COMMITTED, READ WRITE; INSERT INTO writers VALUES ('{}', '{}', {}) "
                  "ON CONFLICT (connection) DO UPDATE SET number = excluded.number, at = excluded.at",
                  writer_.connection, writer_.transaction, now_ms()));
}

// Writing to the same row waits for a transaction that is still under way, also one that made the row.
bool PostgresConnection::was_committed(const Writer& writer) {
  SqlStatement row =
      prepare("INSERT INTO writers VALUES (?, '', ?) ON CONFLICT (connection) DO UPDATE SET at = excluded.at RETURNING number");
  return row.bind(writer.connection).bind(now_ms()).step() && row.text(0) == writer.transaction;
}

void PostgresConnection::commit() {
  const Result result = checked(PQexec(handle_.get(), "COMMIT"));
  require(std::string_view(PQcmdStatus(result.get())) == "COMMIT", "a failed transaction was committed");
}

void PostgresConnection::roll_back() noexcept { PQclear(PQexec(handle_.get(), "ROLLBACK")); }

std::string PostgresConnection::quoted(std::string_view text) const {
  const std::unique_ptr<char, void (*)(void*)> literal(PQescapeLiteral(handle_.get(), text.data(), text.size()), PQfreemem);
  if (!literal) refuse(nullptr);
  return literal.get();
}

}  // namespace flux2
