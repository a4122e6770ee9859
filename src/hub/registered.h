#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hub/recognise.h"

namespace flux2 {

// A registered part of a model, with the fields that are needed to locate a model.
struct RegisteredPart {
  std::string key, name;
  ComponentKind kind = ComponentKind::Unknown;
  std::filesystem::path path;

  // Of a transformer:
  std::optional<bool> distilled;  // when the registry knows
  bool kv = false;
  std::string vae, text_encoder, tokenizer;     // keys of the parts to use with it; empty: whichever fits
  std::optional<int64_t> steps, width, height;  // what the user prefers
  std::optional<double> guidance;
};

class RegisteredParts {
 public:
  RegisteredParts() = default;
  explicit RegisteredParts(std::vector<RegisteredPart> parts) : parts_(std::move(parts)) {}

  // By key, by name, or by an unambiguous beginning of a name; case is ignored. Null if there is none. Throws InvalidArgument,
  // listing them, if several names start with it.
  const RegisteredPart* find(std::string_view name, ComponentKind kind) const;

  // By key or by the whole name only.
  const RegisteredPart* find_exact(std::string_view name, ComponentKind kind) const;

  std::vector<const RegisteredPart*> of(ComponentKind kind) const;
  std::vector<std::string> names(ComponentKind kind) const;

 private:
  std::vector<RegisteredPart> parts_;
};

}  // namespace flux2
