#include "hub/environment.h"

#include "base/error.h"

namespace flux2 {

namespace {

constexpr ModelVariable kModelVariables[] = {
    {"KLEIN_4B_MODEL_PATH", "flux.2-klein-4b"},
    {"KLEIN_9B_MODEL_PATH", "flux.2-klein-9b"},
    {"KLEIN_4B_BASE_MODEL_PATH", "flux.2-klein-base-4b"},
    {"KLEIN_9B_BASE_MODEL_PATH", "flux.2-klein-base-9b"},
    {"FLUX2_MODEL_PATH", "flux.2-dev"},
};

}  // namespace

std::optional<std::filesystem::path> Environment::value(const char* name) const {
  const char* text = lookup_ ? lookup_(name) : nullptr;
  if (!text || !*text) return std::nullopt;
  return text;
}

std::optional<std::filesystem::path> Environment::path(const char* name) const {
  auto path = value(name);
  std::error_code unreadable;
  if (path && !std::filesystem::exists(*path, unreadable))
    throw Error(ErrorCode::NotFound, fmt::format("{} is set to {}, which does not exist", name, path->string()),
                "correct the variable, or unset it");
  return path;
}

const ModelVariable* Environment::first_model() const {
  for (const ModelVariable& v : kModelVariables)
    if (value(v.name)) return &v;
  return nullptr;
}

const ModelVariable* Environment::model_of(std::string_view variant) const {
  for (const ModelVariable& v : kModelVariables)
    if (v.variant == variant && value(v.name)) return &v;
  return nullptr;
}

}  // namespace flux2
