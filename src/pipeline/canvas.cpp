#include "pipeline/canvas.h"

#include <algorithm>

#include "ops/arithmetic.h"
#include "pipeline/request.h"
#include "pipeline/session.h"

namespace flux2 {

CanvasBlend::CanvasBlend(Session& session, const Request& request, const Tensor& canvas, const Tensor& noise)
    : canvas_(canvas), noise_(noise) {
  check(canvas.shape() == noise.shape().with(0, 1), "a canvas of shape {} for latents of shape {}", canvas.shape(),
        noise.shape());
  const std::vector<float>& mask = request.canvas->mask;
  if (mask.empty()) return;
  check(static_cast<int64_t>(mask.size()) == request.tokens(), "a mask of {} values for {} tokens", mask.size(),
        request.tokens());
  mask_ = Tensor::from<float>(*session.stream, DType::F32, {1, request.tokens(), 1}, mask);
}

Tensor CanvasBlend::noised(float sigma) const {
  const auto s = static_cast<double>(sigma);
  return s * noise_ + (1.0 - s) * canvas_;
}

Tensor CanvasBlend::kept(const Tensor& x, float sigma) const {
  if (!mask_.defined()) return x;
  return mask_ * x + affine(mask_, -1.0, 1.0) * noised(sigma);
}

std::vector<float> sigmas_for_strength(std::vector<float> sigmas, double strength) {
  const auto n = static_cast<double>(sigmas.size() - 1);
  const auto first = static_cast<ptrdiff_t>(std::max(n - std::min(n * strength, n), 0.0));
  sigmas.erase(sigmas.begin(), sigmas.begin() + std::min(first, static_cast<ptrdiff_t>(sigmas.size()) - 2));
  return sigmas;
}

}  // namespace flux2
