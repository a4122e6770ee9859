#pragma once

#include <filesystem>

#include "server/http/router.h"

namespace flux2 {

// The page for people, at "/". Its files are embedded; with `folder` they are read from there at every request, for those who
// work on the page.
void add_page_routes(Router& router, const std::filesystem::path& folder = {});

}  // namespace flux2
