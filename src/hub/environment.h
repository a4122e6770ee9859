#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string_view>

namespace flux2 {

// An environment variable of the reference program that names the transformer of a variant.
struct ModelVariable {
  const char* name;
  const char* variant;
};

// The variables that name files. An empty value counts as unset; a path that does not exist is an error, so that a
// mistyped variable never falls back to another model.
class Environment {
 public:
  explicit Environment(std::function<const char*(const char*)> lookup) : lookup_(std::move(lookup)) {}

  std::optional<std::filesystem::path> path(const char* name) const;
  const ModelVariable* first_model() const;                       // the first one set; null when none is
  const ModelVariable* model_of(std::string_view variant) const;  // the variant's, when set

 private:
  std::optional<std::filesystem::path> value(const char* name) const;

  std::function<const char*(const char*)> lookup_;
};

}  // namespace flux2
