#include "pipeline/reference_memory.h"

#include "nn/timestep.h"

namespace flux2 {

std::shared_ptr<const ReferenceMemory> remember_references(const std::shared_ptr<const Flux2Transformer>& transformer,
                                                           Session& session, const Request& request,
                                                           const ReferenceTokens& references, const BeforeBlock& before_block) {
  auto& kept = session.reference_memory;
  if (kept && kept->list == references.list && kept->transformer.lock() == transformer) return kept;
  // Steps captured with the old memory hold on to it.
  std::erase_if(session.captured_work, [&](const CapturedWork& work) { return work.model == kept; });
  kept = nullptr;

  const auto sinusoid = [&](double value) {
    const float argument = time_argument(static_cast<float>(value), request.time_rounding);
    return timestep_embedding(*session.stream, std::vector<float>{argument}, session.activations);
  };
  const Tensor guidance = transformer->config.guidance ? sinusoid(request.guidance) : Tensor();
  const Tensor vec = transformer->condition(sinusoid(0.0), guidance);
  const Rope rope = flux2_rope(*session.stream, references.positions);
  kept = std::make_shared<const ReferenceMemory>(ReferenceMemory{
      transformer, references.list,
      transformer->reference_keys(references.tokens.cast(session.activations), vec, rope, before_block)});
  return kept;
}

}  // namespace flux2
