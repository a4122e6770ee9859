#include "server/jobs/job_kinds.h"

namespace flux2 {

const std::vector<std::string>& job_kinds() {
  static const std::vector<std::string> kinds = {"generate", "edit",  "inpaint",  "element_visual", "shot",  "rewrite",
                                                 "describe", "train", "download", "convert",        "verify"};
  return kinds;
}

bool is_image_kind(std::string_view kind) { return kind == "generate" || kind == "edit" || kind == "inpaint"; }

bool is_text_kind(std::string_view kind) { return kind == "rewrite" || kind == "describe"; }

Task task_of_kind(std::string_view kind) {
  return kind == "inpaint" ? Task::Inpaint : kind == "edit" ? Task::Edit : Task::Generate;
}

}  // namespace flux2
