#pragma once

#include <memory>

#include "app/context.h"
#include "server/blobs/blob_store.h"
#include "server/storage_options.h"
#include "server/store/sql.h"

namespace flux2 {

std::shared_ptr<SqlDatabase> open_database(const StorageOptions& options);
std::unique_ptr<BlobStore> open_blobs(const StorageOptions& options, const AppContext& context);

}  // namespace flux2
