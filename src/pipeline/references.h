#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nn/rope_table.h"
#include "pipeline/progress.h"
#include "pipeline/request.h"
#include "pipeline/session.h"

namespace flux2 {

// The references of a request as input of the transformer: clean latents, one image after the other.
struct ReferenceTokens {
  Tensor tokens;                         // [1, Nr, 128] in F32; undefined without references
  std::vector<TokenPosition> positions;  // t = 10, 20, …; rows and columns of each begin at 0
  std::vector<int> regions;              // of each token: the region whose reference it belongs to, -1 for those of all
  std::string list;                      // the same for the same images in the same order

  int64_t count() const { return static_cast<int64_t>(positions.size()); }
};

// Encodes the references that are not in the session's cache: those of the whole image, then those of each region. The positions
// of a region's references go on from those of the whole image, as if the region were an image of its own.
ReferenceTokens encode_references(Session& session, const Request& request, const Progress& progress);

// The latents [1, I, 128] in F32 of one image, whose sides are multiples of 16; from the session's cache when it has been
// encoded before. In tiles where the session decodes in tiles, and when memory runs out.
Tensor encode_picture(Session& session, const Planes& picture, const Progress& progress);

// klein-9B-KV: the keys and values of a list of references in every block, which serve all steps, prompts and seeds.
struct ReferenceMemory {
  std::weak_ptr<const Flux2Transformer> transformer;  // whose blocks they are
  std::string list;                                   // of which references, in their order
  double guidance = 0;                                // that their blocks saw, for models with guidance embedding; else 0
  ReferenceKeys keys;                                 // [1, Nr, H, D]

  int64_t bytes() const;
};

// The session's keys and values for these references. If the session holds those of other references, they are replaced.
std::shared_ptr<const ReferenceMemory> remember_references(const std::shared_ptr<const Flux2Transformer>& transformer,
                                                           Session& session, const Request& request,
                                                           const ReferenceTokens& references, const BeforeBlock& before_block);

// Forgets the keys and values if they take more than that. To be called between runs.
void limit_reference_memory(Session& session, int64_t bytes);

}  // namespace flux2
