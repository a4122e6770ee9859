#pragma once

#include <string>

#include "hub/recognise.h"

namespace flux2 {

// "transformer: FLUX.2 klein 4B", "tokenizer"
inline std::string component_text(const Component& component) {
  std::string text = name_of(component.kind);
  if (!component.family.empty() || !component.variant.empty()) text += ":";
  for (const std::string* part : {&component.family, &component.variant})
    if (!part->empty()) text += " " + *part;
  return text;
}

}  // namespace flux2
