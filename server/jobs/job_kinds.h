#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "app/resolve.h"

namespace flux2 {

const std::vector<std::string>& job_kinds();  // of all jobs there can be
bool is_image_kind(std::string_view kind);    // generate, edit or inpaint
bool is_text_kind(std::string_view kind);     // rewrite or describe: see text_request.h
Task task_of_kind(std::string_view kind);     // of an image kind

}  // namespace flux2
