#pragma once

#include <string>

#include "hub/recognise.h"

namespace flux2 {

// "transformer: FLUX.2 klein 4B", "tokenizer". The family is left out if the variant names it: "Qwen3-like of width 128".
inline std::string component_text(const Component& component) {
  const bool named = component.variant.find(component.family) != std::string::npos;
  std::string text = name_of(component.kind);
  if (!component.family.empty() || !component.variant.empty()) text += ":";
  if (!component.family.empty() && !named) text += " " + component.family;
  if (!component.variant.empty()) text += " " + component.variant;
  return text;
}

}  // namespace flux2
