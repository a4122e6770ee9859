#pragma once

#include <gtest/gtest.h>

#include <cctype>
#include <memory>
#include <string>

#include "server/store/asset_store.h"
#include "server/store/postgres_sql.h"
#include "server/store/sql_store.h"
#include "server/store/sqlite_sql.h"
#include "server/store/test_folder.h"
#include "server/store/test_postgres.h"

namespace flux2 {

// A test that runs with SQLite and, where it is installed, with PostgreSQL. Use INSTANTIATE_BOTH_DATABASES.
class BothDatabasesTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() == "postgres") {
      if (!postgres_available()) GTEST_SKIP() << "built without PostgreSQL";
      SKIP_WITHOUT_POSTGRES();
      std::string name = "s_";
      for (const char c : folder_.filename().string())
        name +=
            std::isalnum(static_cast<unsigned char>(c)) ? static_cast<char>(std::tolower(static_cast<unsigned char>(c))) : '_';
      database_ = open_postgres(test_postgres().url(name.substr(0, 63)));
    } else {
      database_ = open_sqlite(folder_ / "flux2.db");
    }
    assets_ = std::make_unique<AssetStore>(folder_, open_folder_blobs(folder_), database_);
    jobs_ = open_job_store(database_);
  }

  std::filesystem::path folder_ = server_test_folder();
  std::shared_ptr<SqlDatabase> database_;
  std::unique_ptr<AssetStore> assets_;
  std::unique_ptr<JobStore> jobs_;
};

}  // namespace flux2

#define INSTANTIATE_BOTH_DATABASES(fixture)                                        \
  INSTANTIATE_TEST_SUITE_P(Both, fixture, ::testing::Values("sqlite", "postgres"), \
                           [](const auto& database) { return database.param; })
