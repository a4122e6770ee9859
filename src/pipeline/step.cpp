#include "pipeline/step.h"

#include "pipeline/session.h"

namespace flux2 {

namespace {

Tensor compute(const Flux2Transformer& transformer, const StepConditions& c, const Tensor& x, const Tensor& time) {
  return transformer({.x = x, .vec = transformer.condition(time, c.guidance), .txt = c.text, .rope = c.rope});
}

bool alike(const Tensor& a, const Tensor& b) {
  return a.defined() == b.defined() && (!a.defined() || (a.shape() == b.shape() && a.dtype() == b.dtype()));
}

void update(const Tensor& slot, const Tensor& value) {
  if (slot.defined()) slot.copy_from(value);
}

Tensor slot_for(const Tensor& value) { return value.defined() ? Tensor::like(value) : Tensor(); }

StepGraph make_slots(const std::shared_ptr<const Flux2Transformer>& transformer, const StepConditions& c, const Tensor& x,
                     const Tensor& time) {
  return {.transformer = transformer,
          .conditions = {slot_for(c.text), slot_for(c.guidance), {slot_for(c.rope.cosine), slot_for(c.rope.sine), c.rope.pairs}},
          .x = slot_for(x),
          .time = slot_for(time),
          .velocity = Tensor::like(x, DType::F32, x.shape()),
          .graph = nullptr};
}

StepGraph& graph_for(const std::shared_ptr<const Flux2Transformer>& transformer, Session& session, const StepConditions& c,
                     const Tensor& x, const Tensor& time) {
  for (StepGraph& g : session.step_graphs)
    if (g.transformer == transformer && alike(g.x, x) && alike(g.time, time) && alike(g.conditions.text, c.text) &&
        alike(g.conditions.guidance, c.guidance) && alike(g.conditions.rope.cosine, c.rope.cosine))
      return g;
  // A graph keeps the memory of a whole step.
  if (session.step_graphs.size() >= session.step_graph_limit) session.step_graphs.pop_front();
  return session.step_graphs.emplace_back(make_slots(transformer, c, x, time));
}

}  // namespace

Tensor step_velocity(const std::shared_ptr<const Flux2Transformer>& transformer, Session& session, const StepConditions& c,
                     const Tensor& x, const Tensor& time) {
  if (!session.stream->device().prefers_graphs()) return compute(*transformer, c, x, time).cast(DType::F32);

  StepGraph& g = graph_for(transformer, session, c, x, time);
  update(g.x, x);
  update(g.time, time);
  update(g.conditions.text, c.text);
  update(g.conditions.guidance, c.guidance);
  update(g.conditions.rope.cosine, c.rope.cosine);
  update(g.conditions.rope.sine, c.rope.sine);
  if (g.graph) g.graph->replay();
  else g.graph = session.stream->capture([&g] { g.velocity.copy_from(compute(*g.transformer, g.conditions, g.x, g.time)); });
  return g.velocity;
}

}  // namespace flux2
