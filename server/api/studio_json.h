#pragma once

#include "base/json.h"
#include "server/http/message.h"
#include "server/store/asset_catalog.h"
#include "server/store/element_store.h"
#include "server/store/project_store.h"
#include "server/store/shot_store.h"

// How the studio's rows look to clients, and how their ids are read.
namespace flux2 {

Json item_to_json(const CatalogItem& item);
Json project_to_json(const Project& project);
Json board_to_json(const Board& board);
Json element_to_json(const Element& element);
Json scene_to_json(const StoryScene& scene);
Json shot_to_json(const Shot& shot, const std::string& status);  // status: of its last job

// "prj_01J…", or "default" for the default project, whose id is empty. Nothing: it is neither.
std::optional<std::string> project_id_in(const std::string& text);
std::string project_id_text(const std::string& id);  // the opposite

}  // namespace flux2
