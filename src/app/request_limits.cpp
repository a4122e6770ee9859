#include "app/request_limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "base/error.h"
#include "base/text.h"

namespace flux2 {

namespace {

void set_limit(Limits& limits, const LimitField& field, const std::string& text, const std::string& origin) {
  uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data(), end, value);
  if (failure != std::errc() || stop != end || value < field.low || value > field.high)
    fail(ErrorCode::InvalidArgument, "{}: \"{}\" is not a whole number from {} to {}", origin, printable(text), field.low,
         field.high);
  field.set(limits, value);
}

void check_count(const char* limit, int64_t found, int64_t allowed, const std::string& what) {
  try {
    check_limit(limit, static_cast<uint64_t>(std::max<int64_t>(found, 0)), static_cast<uint64_t>(allowed), what,
                ErrorCode::InvalidArgument);
  } catch (const Error& e) {  // the usual hint is about trusting a file, which does not apply to requests
    throw Error(
        e.code(), e.what(),
        e.hint().empty() ? Hint("ask for less") : Hint("ask for less, or raise the limit with {0}", e.hint().suggestions));
  }
}

// Checks the length of a list; the message reads "--input: {} references are given".
void check_list(const char* limit, const RequestSpec& spec, const char* field, const RequestSpec::Texts& list, int64_t allowed,
                const char* what) {
  if (list) check_count(limit, static_cast<int64_t>(list->size()), allowed, spec.origin(field) + ": {} " + what);
}

}  // namespace

std::string environment_name_of(const LimitField& field) {
  std::string name = "FLUX2_LIMITS_";
  for (const char* c = field.name; *c; ++c)
    name += *c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(*c)));
  return name;
}

Limits limits_of(const GetEnv& environment, const ConfigFile& user, Limits defaults) {
  Limits limits = defaults;
  for (const LimitField& field : limit_fields()) {
    const std::string key = std::string("limits.") + field.name, variable = environment_name_of(field);
    const std::string origin = user.path.empty() ? key : key + " in " + user.path.filename().string();
    if (const std::string* text = user.find(key)) set_limit(limits, field, *text, origin);
    if (const char* text = environment(variable.c_str()); text && *text) set_limit(limits, field, text, variable);
  }
  return limits;
}

void check_request_limits(const RequestSpec& spec, const Limits& limits) {
  const RequestLimits& r = limits.request;
  const auto number = [&](const char* limit, const char* field, const RequestSpec::Integer& value, int64_t allowed,
                          const char* unit) {
    if (value) check_count(limit, *value, allowed, spec.origin(field) + ": {} " + unit);
  };
  number("side", "width", spec.width, r.side, "pixels");
  number("side", "height", spec.height, r.side, "pixels");
  if (spec.width && spec.height && *spec.width > 0 && *spec.height > 0)
    check_count("pixels", *spec.width * *spec.height, r.pixels, spec.origin("width") + ": an image of {} pixels");
  number("batch", "batch", spec.batch, r.batch, "images");
  number("repeat", "repeat", spec.repeat, r.repeat, "repetitions");
  number("steps", "steps", spec.steps, r.steps, "steps");
  number("threads", "threads", spec.threads, limits.process.threads, "threads");
  check_list("references", spec, "input", spec.input, r.references, "references");
  check_list("references", spec, "region_reference", spec.region_reference, r.references, "references");
  check_list("references", spec, "image_prompt", spec.image_prompt, r.references, "image prompts");
  if (spec.region)
    for (const std::string& region : *spec.region)
      check_count("prompt-bytes", static_cast<int64_t>(region.size()), r.prompt_bytes, spec.origin("region") + ": {} long");
  check_list("adapters", spec, "lora", spec.lora, r.adapters, "adapters");
  for (const auto& [field, text] :
       {std::pair{"prompt", &spec.prompt}, {"rewritten_prompt", &spec.rewritten_prompt}, {"negative", &spec.negative}}) {
    if (*text)
      check_count("prompt-bytes", static_cast<int64_t>((*text)->size()), r.prompt_bytes, spec.origin(field) + ": {} long");
  }
}

void check_run_limits(size_t prompts, const RequestSpec& spec, const Limits& limits) {
  check_count("prompts", static_cast<int64_t>(prompts), limits.request.prompts, "{} prompts in one run");
  if (!spec.repeat) return;
  check_count("repeat", *spec.repeat, limits.request.repeat, spec.origin("repeat") + ": {} repetitions");
  check_count("prompts", static_cast<int64_t>(prompts) * *spec.repeat, limits.request.prompts,
              fmt::format("{}: {} prompts repeated {} times are {{}} requests", spec.origin("repeat"), prompts, *spec.repeat));
}

}  // namespace flux2
