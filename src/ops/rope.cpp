#include "ops/rope.h"

#include "autograd/grad.h"

namespace flux2 {

Tensor rope(const Tensor& x, const Tensor& cosine, const Tensor& sine, RopePairs pairs) {
  require(x.rank() == 4 && cosine.shape() == Shape{x.dim(1), x.dim(3) / 2} && sine.shape() == cosine.shape() && x.dim(3) % 2 == 0,
          "rope: table {} for input {}", cosine.shape(), x.shape());
  const bool interleaved = pairs == RopePairs::Interleaved;
  Tensor y = Tensor::like(x);
  if (y.numel() > 0) x.device().kernels().rope({x, cosine, sine, y, interleaved, false});
  return record("rope", std::move(y), {x}, [cosine, sine, interleaved](const Tensor& dy, GradSink& sink) {
    Tensor dx = Tensor::like(dy);
    dy.device().kernels().rope({dy, cosine, sine, dx, interleaved, true});
    sink.add(0, dx);
  });
}

}  // namespace flux2
