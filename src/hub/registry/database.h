#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"

struct sqlite3;
struct sqlite3_stmt;

namespace flux2 {

// One prepared SQL statement. Parameters are bound in order; step() says whether a row is there to be read.
class Statement {
 public:
  Statement& bind(int64_t value);
  Statement& bind(std::string_view text);
  Statement& bind_real(double value);
  bool step();
  void run() {
    while (step()) {}
  }
  void reset();  // without parameters and rows, to be used again

  int64_t integer(int column) const;
  double real(int column) const;
  std::string text(int column) const;  // of any type, "" for NULL

 private:
  friend class Database;
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const;
  };

  class Database const* database_ = nullptr;
  std::unique_ptr<sqlite3_stmt, Finalize> handle_;
  int bound_ = 0;
};

// Another process or connection holds the file. Trying again may help.
struct DatabaseBusy : Error {
  using Error::Error;
};

// A connection to an SQLite file. Every failure is an Error that names the file: BadFile for a damaged or foreign one,
// CannotWrite for problems with the disk, permissions or another process. A file is never deleted or replaced.
class Database {
 public:
  enum class Access {
    Read,   // the file must exist; one that cannot be written is read as it stands
    Write,  // created when missing, with its folder
  };
  Database(std::filesystem::path path, Access access);

  Statement prepare(std::string_view sql) const;
  void run(std::string_view sql) const;  // statements without parameters or results, several separated by semicolons
  int64_t changes() const;               // rows changed by the last statement
  const std::filesystem::path& path() const { return path_; }

  [[noreturn]] void refuse(int code) const;

 private:
  struct Close {
    void operator()(sqlite3* handle) const;
  };

  void open(Access access);
  void prepare_for_sharing() const;

  std::filesystem::path path_;
  std::unique_ptr<sqlite3, Close> handle_;
};

// A transaction: without commit(), all changes since the constructor are rolled back. It takes the write lock immediately, so
// that two processes wait for each other instead of failing half-way.
class Transaction {
 public:
  explicit Transaction(const Database& database);
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  ~Transaction();

  void commit();

 private:
  const Database& database_;
  bool open_ = true;
};

// Brings the tables of one area of the file up to date: step i leads from version i to i + 1. Several parts of the program may
// keep tables in one file, so each area has a version of its own. Throws Incompatible if a newer version of the program has
// written the file.
void migrate(const Database& database, std::string_view area, std::span<const char* const> steps);

}  // namespace flux2
