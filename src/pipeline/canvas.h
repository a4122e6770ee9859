#pragma once

#include <vector>

#include "tensor/tensor.h"

namespace flux2 {

struct Request;
struct Session;

// The effect of a start image (canvas) during denoising. ε is the noise of each image [N, I, 128]; it stays the same during the
// run.
class CanvasBlend {
 public:
  // canvas [1, I, 128]: the latents of the request's canvas.
  CanvasBlend(Session& session, const Request& request, const Tensor& canvas, const Tensor& noise);

  Tensor noised(float sigma) const;  // σ·ε + (1 − σ)·canvas, where a run that begins at σ starts
  // After a step to σ: m ⊙ x + (1 − m) ⊙ noised(σ). Itself without a mask.
  Tensor kept(const Tensor& x, float sigma) const;

 private:
  Tensor canvas_, noise_;
  Tensor mask_;  // [1, I, 1]; undefined: everything is new
};

// The sigmas of the steps that run: the last n·strength of n steps, but at least one.
std::vector<float> sigmas_for_strength(std::vector<float> sigmas, double strength);

}  // namespace flux2
