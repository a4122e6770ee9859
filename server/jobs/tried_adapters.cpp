#include "server/jobs/tried_adapters.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/foreign_text.h"
#include "base/path_exists.h"
#include "base/text.h"

namespace flux2 {

namespace {

constexpr std::string_view kRunPrefix = "run:";

}  // namespace

std::string tried_name(const std::string& run, int64_t step) { return fmt::format("{}{}@{}", kRunPrefix, run, step); }

std::filesystem::path tried_file(const std::filesystem::path& data_folder, const std::string& run, int64_t step) {
  return data_folder / "training" / "tried" / fmt::format("{}@{}.safetensors", run, step);
}

bool is_tried_name(const std::string& text) { return text.starts_with(kRunPrefix); }

TriedAdapter tried_adapter(const std::string& text, const std::filesystem::path& data_folder) {
  const size_t at = text.find('@');
  const std::string run = at == text.npos ? "" : text.substr(kRunPrefix.size(), at - kRunPrefix.size());
  const size_t end = at == text.npos ? text.size() : std::min(text.find(':', at), text.size());
  const std::string step = at == text.npos ? "" : text.substr(at + 1, end - at - 1);
  const bool is_name = is_plain_name(run) && !step.empty() && step.size() <= 12 &&
                       step.find_first_not_of("0123456789") == step.npos && (step.size() == 1 || step[0] != '0');
  TriedAdapter tried;
  if (is_name) tried = {tried_file(data_folder, run, std::stoll(step)), text.substr(end)};
  if (!is_name || !path_exists(tried.file))
    throw Error(ErrorCode::NotFound, fmt::format("adapter \"{}\" not found", printable(text.substr(0, end))),
                "to make it available, send POST to the address of its checkpoint followed by /try");
  return tried;
}

}  // namespace flux2
