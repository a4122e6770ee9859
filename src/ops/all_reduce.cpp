#include "ops/all_reduce.h"

#include "autograd/grad.h"

namespace flux2 {

Tensor all_reduce(const Tensor& x, Communicator& ranks) {
  Tensor y = x.cloned();
  if (y.numel() > 0) ranks.all_reduce(y);
  return record("all_reduce", std::move(y), {x}, [](const Tensor& dy, GradSink& sink) { sink.add(0, dy); });
}

Tensor spread(const Tensor& x, Communicator& ranks) {
  return record("spread", x.detached(), {x}, [&ranks](const Tensor& dy, GradSink& sink) {
    Tensor total = dy.cloned();
    ranks.all_reduce(total);
    sink.add(0, total);
  });
}

}  // namespace flux2
