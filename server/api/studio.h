#pragma once

#include <optional>
#include <string>

#include "server/api/api_context.h"
#include "server/http/router.h"

// The studio's part of the native family: projects, boards, the catalog of images.
namespace flux2 {

void add_project_routes(Router& router, ApiContext& api);  // projects and their boards
void add_gallery_routes(Router& router, ApiContext& api);  // searching, arranging and deleting images

// The argument "project" of a query: "" for the default project, nothing if there is none. Throws HttpError 400.
std::optional<std::string> project_argument(const ServerRequest& request);

// Deletes what was put into the trash before that time. Returns the number of images.
int purge_trash(AssetStore& assets, Events& events, int64_t before_ms);

}  // namespace flux2
