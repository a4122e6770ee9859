#pragma once

#include "server/store/asset_store.h"

// How rows of the table `assets` are read, for the files that do.
namespace flux2 {

constexpr const char* kAssetColumns =
    "id, project, kind, path, mime, sha256, job, parent, bytes, width, height, created, missing";
constexpr int kAssetColumnCount = 13;

// The columns above must be the first ones.
Asset read_asset(const SqlStatement& row);

// Within a transaction. False: the project has these bytes as this kind already.
bool insert_asset_row(SqlConnection& sql, const Asset& asset);

}  // namespace flux2
