#include "pipeline/captured.h"

#include <algorithm>

#include "pipeline/session.h"

namespace flux2 {

namespace {

bool alike(const Tensor& a, const Tensor& b) {
  return a.defined() == b.defined() && (!a.defined() || (a.shape() == b.shape() && a.dtype() == b.dtype()));
}

CapturedWork& slots_for(Session& session, const std::shared_ptr<const void>& model, const std::vector<Tensor>& inputs,
                        DType dtype, const Shape& shape, const std::string& variant) {
  for (CapturedWork& c : session.captured_work)
    if (c.model == model && c.variant == variant &&
        std::equal(c.inputs.begin(), c.inputs.end(), inputs.begin(), inputs.end(), alike))
      return c;
  if (session.captured_work.size() >= session.captured_limit) session.captured_work.pop_front();
  CapturedWork& c = session.captured_work.emplace_back();
  c.model = model;
  c.variant = variant;
  for (const Tensor& t : inputs) c.inputs.push_back(t.defined() ? Tensor::like(t) : Tensor());
  c.output = Tensor::empty(*session.stream, dtype, shape);
  return c;
}

}  // namespace

bool captures(const Session& session) { return session.capture && session.stream->device().prefers_graphs(); }

Tensor captured(Session& session, const std::shared_ptr<const void>& model, const std::vector<Tensor>& inputs, DType dtype,
                const Shape& shape, const std::function<Tensor(std::span<const Tensor>)>& work, const std::string& variant) {
  if (!captures(session)) return work(inputs).cast(dtype);

  CapturedWork& c = slots_for(session, model, inputs, dtype, shape, variant);
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].defined()) c.inputs[i].copy_from(inputs[i]);
  if (c.graph) c.graph->replay();
  else c.graph = session.stream->capture([&] { c.output.copy_from(work(c.inputs)); });
  return c.output;
}

}  // namespace flux2
