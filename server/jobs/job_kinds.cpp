#include "server/jobs/job_kinds.h"

namespace flux2 {

bool is_image_kind(std::string_view kind) { return kind == "generate" || kind == "edit" || kind == "inpaint"; }

bool is_text_kind(std::string_view kind) { return kind == "rewrite" || kind == "describe"; }

Task task_of_kind(std::string_view kind) {
  return kind == "inpaint" ? Task::Inpaint : kind == "edit" ? Task::Edit : Task::Generate;
}

}  // namespace flux2
