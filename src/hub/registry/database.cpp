#include "hub/registry/database.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <chrono>
#include <thread>

#include "base/error.h"

namespace flux2 {

namespace {

namespace fs = std::filesystem;

constexpr int kPatienceMs = 15000;        // another process may hold the file for a moment
constexpr int kLargestValue = 16 << 20;   // of one text, against files made to exhaust memory
constexpr int kApplication = 0x464c5832;  // "FLX2", shown by file(1)

Hint how_to_replace(const std::string& condition = {}) {
  return Hint(condition + "rename it, for instance to flux2.db.damaged, and register the models again with {0} and {1}",
              {run_command("models scan FOLDER"), set_option("add")});
}

// The path as part of a file: address.
std::string as_address(const fs::path& path) {
  std::string text = "file:";
  for (const char c : fs::absolute(path).string())
    if (c == '%' || c == '?' || c == '#') text += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    else text += c;
  return text;
}

// Our own messages for the error codes of the library.
const char* words_for(int code) {
  switch (code & 0xff) {
    case SQLITE_CANTOPEN: return "the file or its folder cannot be opened";
    case SQLITE_READONLY: return "the file or its folder is read-only";
    case SQLITE_FULL: return "the disk is full";
    case SQLITE_IOERR: return "the disk reports an error";
    case SQLITE_PERM: return "permission denied";
    case SQLITE_NOTADB: return "it is not a database";
    case SQLITE_TOOBIG: return "a text in it is too long";
    case SQLITE_CORRUPT: return "its content is inconsistent";
    default: return "it does not have the expected tables";
  }
}

}  // namespace

// ---- statements ----

void Statement::Finalize::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }

Statement& Statement::bind(int64_t value) {
  if (const int code = sqlite3_bind_int64(handle_.get(), ++bound_, value); code != SQLITE_OK) database_->refuse(code);
  return *this;
}

Statement& Statement::bind(std::string_view text) {
  const int code =
      sqlite3_bind_text64(handle_.get(), ++bound_, text.data() ? text.data() : "", text.size(), SQLITE_TRANSIENT, SQLITE_UTF8);
  if (code != SQLITE_OK) database_->refuse(code);
  return *this;
}

Statement& Statement::bind_real(double value) {
  if (const int code = sqlite3_bind_double(handle_.get(), ++bound_, value); code != SQLITE_OK) database_->refuse(code);
  return *this;
}

bool Statement::step() {
  const int code = sqlite3_step(handle_.get());
  if (code == SQLITE_ROW) return true;
  if (code != SQLITE_DONE) database_->refuse(code);
  return false;
}

void Statement::reset() {
  sqlite3_reset(handle_.get());  // it repeats the error of the last step, which was reported
  sqlite3_clear_bindings(handle_.get());
  bound_ = 0;
}

int64_t Statement::integer(int column) const { return sqlite3_column_int64(handle_.get(), column); }

double Statement::real(int column) const { return sqlite3_column_double(handle_.get(), column); }

std::string Statement::text(int column) const {
  const auto* data = sqlite3_column_text(handle_.get(), column);
  const int size = sqlite3_column_bytes(handle_.get(), column);
  return data ? std::string(reinterpret_cast<const char*>(data), static_cast<size_t>(size)) : std::string();
}

// ---- the file ----

void Database::Close::operator()(sqlite3* handle) const { sqlite3_close_v2(handle); }

Database::Database(fs::path path, Access access) : path_(std::move(path)) {
  std::error_code failure;
  if (access == Access::Write && !path_.parent_path().empty()) fs::create_directories(path_.parent_path(), failure);
  if (failure) fail(ErrorCode::CannotWrite, "cannot create folder {}: {}", path_.parent_path().string(), failure.message());
  open(access);
}

void Database::open(Access access) {
  const auto attempt = [&](const std::string& address, int flags) {
    sqlite3* handle = nullptr;
    int code = sqlite3_open_v2(address.c_str(), &handle, flags | SQLITE_OPEN_URI, nullptr);
    handle_.reset(handle);
    if (code != SQLITE_OK) return code;
    sqlite3_busy_timeout(handle, kPatienceMs);
    sqlite3_limit(handle, SQLITE_LIMIT_LENGTH, kLargestValue);
    sqlite3_db_config(handle, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
    sqlite3_db_config(handle, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
    // Opening reads nothing; this does.
    return sqlite3_exec(handle, "PRAGMA cell_size_check = ON; SELECT count(*) FROM sqlite_master", nullptr, nullptr, nullptr);
  };
  const std::string address = as_address(path_);
  int code = attempt(address, SQLITE_OPEN_READWRITE | (access == Access::Write ? SQLITE_OPEN_CREATE : 0));
  // On a read-only file system nobody else can hold a lock.
  if (access == Access::Read && (code == SQLITE_CANTOPEN || code == SQLITE_READONLY))
    code = attempt(address + "?immutable=1", SQLITE_OPEN_READONLY);
  if (code != SQLITE_OK) refuse(code);
  if (access == Access::Write) prepare_for_sharing();
}

// Write-ahead logging lets others read while one process writes. Switching to it needs exclusive access for a moment, which the
// busy time-out does not cover.
void Database::prepare_for_sharing() const {
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(kPatienceMs);
  for (;;) {
    const int code = sqlite3_exec(handle_.get(), "PRAGMA journal_mode = WAL", nullptr, nullptr, nullptr);
    if (code == SQLITE_OK) break;
    if (code != SQLITE_BUSY || std::chrono::steady_clock::now() > until) refuse(code);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  run("PRAGMA foreign_keys = ON; PRAGMA synchronous = NORMAL");
}

Statement Database::prepare(std::string_view sql) const {
  Statement statement;
  statement.database_ = this;
  sqlite3_stmt* handle = nullptr;
  const int code = sqlite3_prepare_v2(handle_.get(), sql.data(), static_cast<int>(sql.size()), &handle, nullptr);
  statement.handle_.reset(handle);
  if (code != SQLITE_OK) refuse(code);
  return statement;
}

void Database::run(std::string_view sql) const {
  const int code = sqlite3_exec(handle_.get(), std::string(sql).c_str(), nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) refuse(code);
}

int64_t Database::changes() const { return sqlite3_changes(handle_.get()); }

void Database::refuse(int code) const {
  const char* const reason = words_for(code);
  switch (code & 0xff) {
    case SQLITE_NOMEM:  // a damaged file may ask for any amount
      throw Error(ErrorCode::OutOfMemory, fmt::format("there is not enough memory to read {}", path_.string()),
                  how_to_replace("if memory is free, this file is damaged: "));
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      throw DatabaseBusy(ErrorCode::CannotWrite, fmt::format("{} is in use by another process", path_.string()),
                         "try again when that has finished");
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
    case SQLITE_FULL:
    case SQLITE_IOERR:
    case SQLITE_PERM:
      throw Error(ErrorCode::CannotWrite, fmt::format("cannot open or write {}: {}", path_.string(), reason),
                  "set FLUX2_HOME to use another folder");
    default:
      throw Error(ErrorCode::BadFile, fmt::format("the registry {} is damaged: {}", path_.string(), reason), how_to_replace());
  }
}

// ---- transactions and versions ----

Transaction::Transaction(const Database& database) : database_(database) { database_.run("BEGIN IMMEDIATE"); }

Transaction::~Transaction() {
  if (!open_) return;
  try {
    database_.run("ROLLBACK");
  } catch (const std::exception&) {  // the failure that brings us here has undone it already
  }
}

void Transaction::commit() {
  database_.run("COMMIT");
  open_ = false;
}

void migrate(const Database& database, std::string_view area, std::span<const char* const> steps) {
  const auto version = [&] {
    Statement found = database.prepare("SELECT version FROM schema_versions WHERE area = ?");
    return found.bind(area).step() ? found.integer(0) : 0;
  };
  const auto newest = static_cast<int64_t>(steps.size());
  const auto has_versions = [&] {  // ends its statement: a snapshot held open would keep us from writing
    return database.prepare("SELECT 1 FROM sqlite_master WHERE name = 'schema_versions'").step();
  };
  if (has_versions() && version() == newest) return;

  Transaction transaction(database);
  database.run(
      fmt::format("PRAGMA application_id = {}; "
                  "CREATE TABLE IF NOT EXISTS schema_versions (area TEXT PRIMARY KEY, version INTEGER NOT NULL)",
                  kApplication));
  const int64_t found = version();  // asked again: another process may have been faster
  if (found < 0 || found > newest)
    throw Error(ErrorCode::Incompatible,
                fmt::format("{} was written by a newer version of this program ({} {}; this version supports {})",
                            database.path().string(), area, found, newest),
                "use that version, or another folder with FLUX2_HOME");
  for (int64_t i = found; i < newest; ++i) database.run(steps[static_cast<size_t>(i)]);
  database.prepare("INSERT INTO schema_versions VALUES (?, ?) ON CONFLICT (area) DO UPDATE SET version = excluded.version")
      .bind(area)
      .bind(newest)
      .run();
  transaction.commit();
}

}  // namespace flux2
