#include "hub/registry/database.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hub/test_models.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing_models::refusal;
using testing_models::scratch_folder;
using testing_models::write_file;

constexpr const char* kFirst[] = {"CREATE TABLE t (a INTEGER, b TEXT)"};
constexpr const char* kBoth[] = {kFirst[0], "ALTER TABLE t ADD COLUMN c TEXT NOT NULL DEFAULT 'new'"};

TEST(Database, RoundTripsValues) {
  const Database db(scratch_folder() / "inner/x.db", Database::Access::Write);
  db.run("CREATE TABLE t (a INTEGER, b TEXT)");
  const std::string odd("with \0 inside, 'quotes' and ü", 31);
  db.prepare("INSERT INTO t VALUES (?, ?)").bind(int64_t{-5'000'000'000}).bind(odd).run();
  Statement row = db.prepare("SELECT a, b, NULL FROM t");
  ASSERT_TRUE(row.step());
  EXPECT_EQ(row.integer(0), -5'000'000'000);
  EXPECT_EQ(row.text(1), odd);
  EXPECT_EQ(row.text(2), "");
  EXPECT_FALSE(row.step());
}

TEST(Database, RoundTripsRealNumbers) {
  const Database db(scratch_folder() / "x.db", Database::Access::Write);
  db.run("CREATE TABLE t (a REAL)");
  db.prepare("INSERT INTO t VALUES (?)").bind_real(0.1).run();
  Statement row = db.prepare("SELECT a FROM t");
  ASSERT_TRUE(row.step());
  EXPECT_EQ(row.real(0), 0.1);
}

TEST(Database, RollsBackAnUnfinishedTransaction) {
  const Database db(scratch_folder() / "x.db", Database::Access::Write);
  db.run("CREATE TABLE t (a INTEGER)");
  const auto count = [&] {
    Statement rows = db.prepare("SELECT count(*) FROM t");
    rows.step();
    return rows.integer(0);
  };
  {
    Transaction lost(db);
    db.run("INSERT INTO t VALUES (1)");
  }
  EXPECT_EQ(count(), 0);
  Transaction kept(db);
  db.run("INSERT INTO t VALUES (1)");
  kept.commit();
  EXPECT_EQ(count(), 1);
}

TEST(Database, MigrationsRunOnceAndInOrder) {
  const fs::path path = scratch_folder() / "x.db";
  {
    const Database db(path, Database::Access::Write);
    migrate(db, "t", kFirst);
    migrate(db, "t", kFirst);  // a second CREATE would fail
    db.run("INSERT INTO t VALUES (1, 'old')");
  }
  const Database db(path, Database::Access::Write);
  migrate(db, "t", kBoth);
  Statement row = db.prepare("SELECT b, c FROM t");
  ASSERT_TRUE(row.step());
  EXPECT_EQ(row.text(0), "old");
  EXPECT_EQ(row.text(1), "new");
  migrate(db, "other", {});  // another area begins at nought
  EXPECT_THAT(refusal([&] { migrate(db, "t", kFirst); }),
              AllOf(HasSubstr("Incompatible"), HasSubstr("newer version"), HasSubstr("FLUX2_HOME")));
}

TEST(Database, FailedMigrationKeepsTheOldVersion) {
  const Database db(scratch_folder() / "x.db", Database::Access::Write);
  migrate(db, "t", kFirst);
  constexpr const char* kBroken[] = {kFirst[0], "CREATE TABLE u (a INTEGER); NONSENSE"};
  EXPECT_THAT(refusal([&] { migrate(db, "t", kBroken); }), HasSubstr("BadFile"));
  migrate(db, "t", kBoth);  // as if it had never been tried
  EXPECT_THAT(refusal([&] { db.run("SELECT * FROM u"); }), HasSubstr("does not have the expected tables"));
}

TEST(Database, RejectsAndKeepsAFileThatIsNotADatabase) {
  const fs::path path = scratch_folder() / "x.db";
  const std::string text = "this is not what it should be, and it is longer than a hundred bytes, " + std::string(4096, 'x');
  write_file(path, text);
  EXPECT_THAT(refusal([&] { Database(path, Database::Access::Write); }),
              AllOf(HasSubstr("BadFile"), HasSubstr("x.db is damaged"), HasSubstr("rename it"), HasSubstr("scan")));
  EXPECT_EQ(read_text_file(path), text);
}

TEST(Database, ReportsWriteFailures) {
  const fs::path folder = scratch_folder();
  write_file(folder / "file", "x");
  EXPECT_THAT(refusal([&] { Database(folder / "file/x.db", Database::Access::Write); }), HasSubstr("CannotWrite"));
  fs::create_directories(folder / "x.db");
  EXPECT_THAT(refusal([&] { Database(folder / "x.db", Database::Access::Write); }), HasSubstr("CannotWrite"));
  EXPECT_THAT(refusal([&] { Database(folder / "none.db", Database::Access::Read); }), HasSubstr("none.db"));
}

TEST(Database, AcceptsUnusualCharactersInPaths) {
  const fs::path path = scratch_folder() / "50% #1?mode=memory.db";
  Database(path, Database::Access::Write).run("CREATE TABLE t (a INTEGER)");
  EXPECT_TRUE(fs::exists(path));
}

}  // namespace
}  // namespace flux2
