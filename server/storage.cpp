#include "server/storage.h"

#include "base/error.h"
#include "net/http.h"
#include "server/blobs/s3_blobs.h"
#include "server/store/postgres_sql.h"
#include "server/store/sqlite_sql.h"

namespace flux2 {

std::shared_ptr<SqlDatabase> open_database(const StorageOptions& options) {
  if (options.database.empty()) return open_sqlite(options.data / "flux2.db");
  return open_postgres(options.database);
}

std::unique_ptr<BlobStore> open_blobs(const StorageOptions& options, const AppContext& context) {
  if (options.images.empty()) return open_folder_blobs(options.data);
  if (!is_s3_place(options.images)) {
    check(options.images.find("://") == std::string::npos, "images cannot be kept at {}: use a folder or s3://BUCKET/FOLDER",
          options.images);
    return open_folder_blobs(options.images);
  }
  return open_s3_blobs({.place = s3_place(options.images, context.environment),
                        .cache = options.data / "image-cache",
                        .cache_bytes = options.image_cache,
                        .http = http_settings(context.environment),
                        .log = context.log});
}

}  // namespace flux2
