#pragma once

#include <optional>
#include <string>

#include "server/api/api_context.h"
#include "server/http/router.h"
#include "server/store/project_store.h"

// The studio's part of the native family: projects, boards, the catalog of images.
namespace flux2 {

void add_project_routes(Router& router, ApiContext& api);  // projects and their boards
void add_gallery_routes(Router& router, ApiContext& api);  // searching, arranging and deleting images

void add_element_routes(Router& router, ApiContext& api);  // elements, and what they make of a prompt
void add_archive_routes(Router& router, ApiContext& api);  // a project as a zip archive
void add_shot_routes(Router& router, ApiContext& api);     // scenes and shots of a story
void add_mask_routes(Router& router, ApiContext& api);     // the service that makes masks

// "prj_01J…" or "default" of the path → the project. Throws HttpError 404 if there is none, or if it is in the trash.
Project project_in_path(const ServerRequest& request, ApiContext& api, bool also_trash = false);

// The argument "project" of a query: "" for the default project, nothing if there is none. Throws HttpError 400.
std::optional<std::string> project_argument(const ServerRequest& request);

// Deletes what was put into the trash before that time. Returns the number of images.
int purge_trash(AssetStore& assets, Events& events, int64_t before_ms);

}  // namespace flux2
