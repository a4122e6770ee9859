#pragma once

#include <memory>
#include <string>

#include "pipeline/references.h"

namespace flux2 {

// klein-9B-KV: the keys and values of a list of references in every block, which serve all steps, prompts and seeds.
struct ReferenceMemory {
  std::weak_ptr<const Flux2Transformer> transformer;  // whose blocks they are
  std::string list;                                   // of which references, in their order
  ReferenceKeys keys;                                 // [1, Nr, H, D]
};

// The session's memory of these references; made, in place of the one it had, when they are others.
std::shared_ptr<const ReferenceMemory> remember_references(const std::shared_ptr<const Flux2Transformer>& transformer,
                                                           Session& session, const Request& request,
                                                           const ReferenceTokens& references, const BeforeBlock& before_block);

}  // namespace flux2
