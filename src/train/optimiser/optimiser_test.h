#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/cpu_device.h"
#include "train/optimiser/optimiser.h"

namespace flux2 {

// A few tensors with random gradients, the same for everybody who asks with the same seed.
struct OptimiserBench {
  explicit OptimiserBench(int threads = 2, DType parameters = DType::F32, DType gradient = DType::F32)
      : device(open_cpu({.threads = threads})), stream(device->open_stream()), gradient_dtype(gradient) {
    for (size_t i = 0; i < shapes().size(); ++i)
      tensors.push_back({"t" + std::to_string(i), values(shapes()[i], parameters, 1.0, static_cast<unsigned>(i))});
  }

  // Around the borders of code blocks, chunks and the smallest 8-bit tensor; matrices, vectors and a stack of matrices.
  static const std::vector<Shape>& shapes() {
    static const std::vector<Shape> kShapes = {{7}, {48, 64}, {64, 65}, {4100}, {2, 3, 37, 33}, {300, 70}};
    return kShapes;
  }

  Tensor values(const Shape& shape, DType dtype, double spread, unsigned seed) const {
    std::mt19937 generator(seed);
    std::normal_distribution<double> normal(0, spread);
    std::vector<float> out(static_cast<size_t>(shape.numel()));
    for (float& v : out) v = static_cast<float>(normal(generator));
    return Tensor::from<float>(*stream, dtype, shape, out);
  }

  // Gradients with a constant part, so that averages differ from zero.
  std::vector<Tensor> gradients(int step) const {
    std::vector<Tensor> out;
    for (size_t i = 0; i < shapes().size(); ++i) {
      const Tensor steady = values(shapes()[i], DType::F32, 0.1, static_cast<unsigned>(500 + i));
      const Tensor noise =
          values(shapes()[i], DType::F32, 0.1, static_cast<unsigned>(1000 + 100 * step) + static_cast<unsigned>(i));
      device->kernels().binary({Binary::Add, steady, noise, noise});
      out.push_back(noise.cast(gradient_dtype));
    }
    return out;
  }

  // Two groups with learning rates in the ratio 1 : ratio.
  std::vector<ParameterGroup> groups(double rate, double ratio = 1) const {
    ParameterGroup first{"first", rate, {tensors.begin(), tensors.begin() + 3}};
    ParameterGroup second{"second", rate * ratio, {tensors.begin() + 3, tensors.end()}};
    return {first, second};
  }

  std::vector<std::vector<float>> floats() const {
    std::vector<std::vector<float>> out;
    for (const TrainedTensor& t : tensors) out.push_back(t.value.to_floats());
    return out;
  }

  std::shared_ptr<Device> device;
  std::shared_ptr<Stream> stream;
  DType gradient_dtype;
  std::vector<TrainedTensor> tensors;
};

// Every optimiser with options that use all of its parts.
struct OptimiserCase {
  const char* type;
  std::vector<std::string> args;
  double rate;
};
inline const std::vector<OptimiserCase>& optimiser_cases() {
  static const std::vector<OptimiserCase> kCases = {
      {"adamw", {}, 1e-3},
      {"adamw8bit", {}, 1e-3},
      {"lion", {"weight_decay=0.1"}, 1e-4},
      {"lion8bit", {"weight_decay=0.1"}, 1e-4},
      {"adafactor", {}, 1e-3},
      {"adafactor", {"relative_step=False", "scale_parameter=False", "beta1=0.9", "weight_decay=0.1"}, 1e-3},
      {"prodigy", {"use_bias_correction=True", "safeguard_warmup=True", "weight_decay=0.1", "d0=1e-3"}, 1.0},
      {"prodigy", {"slice_p=3", "decouple=False", "weight_decay=0.1", "d0=1e-3"}, 1.0},
      {"adamwschedulefree", {"weight_decay=0.1", "warmup_steps=10"}, 2.5e-3},
      {"ademamix", {"t_alpha=100", "t_beta3=100"}, 1e-3},
      {"ademamix8bit", {}, 1e-3},
      {"came", {"weight_decay=0.1"}, 1e-3},
      {"sgd", {}, 1e-2},
      {"sgd", {"momentum=0.9", "dampening=0.1", "weight_decay=0.1"}, 1e-2},
      {"sgd", {"momentum=0.9", "nesterov=True"}, 1e-2},
  };
  return kCases;
}

}  // namespace flux2
