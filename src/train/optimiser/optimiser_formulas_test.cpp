// Compares 50 steps of every optimiser with its formulas, written again here as plain loops in double.
#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "train/optimiser/optimiser_test.h"

namespace flux2 {

namespace {

using Doubles = std::vector<double>;

struct DoubleTensor {
  Shape shape;
  double lr = 0;
  Doubles p, g;
  std::map<std::string, Doubles> s;

  Doubles& state(const std::string& name, size_t size) {
    Doubles& v = s[name];
    if (v.empty()) v.resize(size, 0.0);
    return v;
  }
  Doubles& state(const std::string& name) { return state(name, p.size()); }
};

using Step = std::function<void(std::vector<DoubleTensor>&, int k)>;

// The same rule for every tensor.
Step each(std::function<void(DoubleTensor&, int)> rule) {
  return [rule](std::vector<DoubleTensor>& all, int k) {
    for (DoubleTensor& t : all) rule(t, k);
  };
}

void double_adamw(DoubleTensor& t, int k) {
  Doubles &m = t.state("m"), &v = t.state("v");
  for (size_t i = 0; i < t.p.size(); ++i) {
    t.p[i] *= 1 - t.lr * 0.01;
    m[i] = 0.9 * m[i] + 0.1 * t.g[i];
    v[i] = 0.999 * v[i] + 0.001 * t.g[i] * t.g[i];
    t.p[i] -= t.lr * (m[i] / (1 - std::pow(0.9, k))) / (std::sqrt(v[i] / (1 - std::pow(0.999, k))) + 1e-8);
  }
}

void double_lion(DoubleTensor& t, int) {
  Doubles& m = t.state("m");
  for (size_t i = 0; i < t.p.size(); ++i) {
    t.p[i] *= 1 - t.lr * 0.1;
    const double c = 0.9 * m[i] + 0.1 * t.g[i];
    t.p[i] -= t.lr * ((c > 0) - (c < 0));
    m[i] = 0.99 * m[i] + 0.01 * t.g[i];
  }
}

// The code book of the 8-bit states, in double.
Doubles double_book(bool is_signed) {
  Doubles book = {0, 1};
  for (int i = 0; i < 7; ++i) {
    const int n = 1 << (is_signed ? i : i + 1);
    for (int k = 0; k < n; ++k) {
      const double v = (0.1 + 0.9 * (k + 0.5) / n) * std::pow(10, i - 6);
      book.push_back(v);
      if (is_signed) book.push_back(-v);
    }
  }
  std::sort(book.begin(), book.end());
  return book;
}

// What is left of a state after it has been stored in 8 bits.
void store_8bit(Doubles& s, bool is_signed) {
  static const Doubles kSigned = double_book(true), kUnsigned = double_book(false);
  const Doubles& book = is_signed ? kSigned : kUnsigned;
  for (size_t first = 0; first < s.size(); first += 256) {
    const size_t end = std::min(s.size(), first + 256);
    double largest = 0;
    for (size_t i = first; i < end; ++i) largest = std::max(largest, std::abs(s[i]));
    if (largest == 0) continue;
    for (size_t i = first; i < end; ++i) {
      const double v = s[i] / largest;
      const auto above = static_cast<size_t>(std::lower_bound(book.begin(), book.end(), v) - book.begin());
      size_t best = std::min(above, book.size() - 1);
      if (above > 0 && v - book[above - 1] <= std::abs(book[best] - v)) best = above - 1;
      if (is_signed && (book[best] < 0) != (s[i] < 0)) best += s[i] > 0 ? 1 : static_cast<size_t>(-1);
      s[i] = book[best] * largest;
    }
  }
}

void double_adamw8bit(DoubleTensor& t, int k) {
  Doubles &m = t.state("m"), &v = t.state("v");
  const double root = std::sqrt(1 - std::pow(0.999, k));
  for (size_t i = 0; i < t.p.size(); ++i) {
    m[i] = 0.9 * m[i] + 0.1 * t.g[i];
    v[i] = 0.999 * v[i] + 0.001 * t.g[i] * t.g[i];
    t.p[i] -= t.lr * root / (1 - std::pow(0.9, k)) * m[i] / (std::sqrt(v[i]) + 1e-8 * root);
    t.p[i] *= 1 - t.lr * 0.01;
  }
  if (t.p.size() < 4096) return;
  store_8bit(m, true);
  store_8bit(v, false);
}

void double_lion8bit(DoubleTensor& t, int k) {
  double_lion(t, k);
  if (t.p.size() >= 4096) store_8bit(t.state("m"), true);
}

void double_ademamix(DoubleTensor& t, int k, double alpha, double b3) {
  Doubles &m1 = t.state("m1"), &m2 = t.state("m2"), &v = t.state("v");
  for (size_t i = 0; i < t.p.size(); ++i) {
    m1[i] = 0.9 * m1[i] + 0.1 * t.g[i];
    m2[i] = b3 * m2[i] + (1 - b3) * t.g[i];
    v[i] = 0.999 * v[i] + 0.001 * t.g[i] * t.g[i];
    t.p[i] = t.p[i] * (1 - t.lr * 0.01) -
             t.lr * (m1[i] / (1 - std::pow(0.9, k)) + alpha * m2[i]) / (std::sqrt(v[i] / (1 - std::pow(0.999, k))) + 1e-8);
  }
}

double root_mean_square(const Doubles& v) {
  double sum = 0;
  for (const double x : v) sum += x * x;
  return std::sqrt(sum / static_cast<double>(v.size()));
}

// rsqrt(R / mean R) ⊗ rsqrt(C) after averaging rows and columns of u, matrix by matrix.
Doubles factored_scale(DoubleTensor& t, const Doubles& u, const std::string& name, double beta) {
  const auto rows = static_cast<size_t>(t.shape[-2]), columns = static_cast<size_t>(t.shape[-1]),
             matrices = u.size() / rows / columns;
  Doubles &r = t.state(name + " row", matrices * rows), &c = t.state(name + " col", matrices * columns);
  Doubles out(u.size());
  for (size_t m = 0; m < matrices; ++m) {
    const size_t base = m * rows * columns;
    double mean = 0;
    for (size_t i = 0; i < rows; ++i) {
      double sum = 0;
      for (size_t j = 0; j < columns; ++j) sum += u[base + i * columns + j];
      double& row = r[m * rows + i];
      row = beta * row + (1 - beta) * sum / static_cast<double>(columns);
      mean += row / static_cast<double>(rows);
    }
    for (size_t j = 0; j < columns; ++j) {
      double sum = 0;
      for (size_t i = 0; i < rows; ++i) sum += u[base + i * columns + j];
      double& column = c[m * columns + j];
      column = beta * column + (1 - beta) * sum / static_cast<double>(rows);
      for (size_t i = 0; i < rows; ++i) out[base + i * columns + j] = 1 / std::sqrt(r[m * rows + i] / mean) / std::sqrt(column);
    }
  }
  return out;
}

Doubles scaled_gradient(DoubleTensor& t, double eps, double beta) {
  Doubles u(t.g.size()), out(t.g.size());
  for (size_t i = 0; i < u.size(); ++i) u[i] = t.g[i] * t.g[i] + eps;
  if (t.shape.rank() >= 2) {
    out = factored_scale(t, u, "second", beta);
    for (size_t i = 0; i < u.size(); ++i) out[i] *= t.g[i];
  } else {
    Doubles& v = t.state("v");
    for (size_t i = 0; i < u.size(); ++i) {
      v[i] = beta * v[i] + (1 - beta) * u[i];
      out[i] = t.g[i] / std::sqrt(v[i]);
    }
  }
  const double rms = root_mean_square(out);
  for (double& x : out) x /= std::max(1.0, rms);
  return out;
}

void double_adafactor(DoubleTensor& t, int k, bool relative, double beta1, double decay) {
  const Doubles update = scaled_gradient(t, 1e-30, 1 - std::pow(k, -0.8));
  const double rate = relative ? std::min(1e-2, 1 / std::sqrt(k)) * std::max(1e-3, root_mean_square(t.p)) : t.lr;
  Doubles& m = t.state("m");
  for (size_t i = 0; i < t.p.size(); ++i) {
    double step = rate * update[i];
    if (beta1 > 0) step = m[i] = beta1 * m[i] + (1 - beta1) * step;
    t.p[i] = t.p[i] - decay * rate * t.p[i] - step;
  }
}

void double_came(DoubleTensor& t, int) {
  const Doubles h = scaled_gradient(t, 1e-30, 0.999);
  Doubles &m = t.state("m"), e(h.size());
  for (size_t i = 0; i < h.size(); ++i) {
    m[i] = 0.9 * m[i] + 0.1 * h[i];
    e[i] = (h[i] - m[i]) * (h[i] - m[i]) + 1e-16;
  }
  const Doubles scale = t.shape.rank() >= 2 ? factored_scale(t, e, "residual", 0.9999) : Doubles(h.size(), 1.0);
  for (size_t i = 0; i < h.size(); ++i) t.p[i] = t.p[i] * (1 - t.lr * 0.1) - t.lr * m[i] * scale[i];
}

struct DoubleProdigy {
  bool corrects, safeguard, decoupled;
  size_t slice;
  double d = 1e-3, d_max = 1e-3, num = 0;

  void operator()(std::vector<DoubleTensor>& all, int k) {
    const double d0 = 1e-3, beta3 = std::sqrt(0.999), lr = all[0].lr;
    const double dlr = d * lr * (corrects ? std::sqrt(1 - std::pow(0.999, k)) / (1 - std::pow(0.9, k)) : 1.0);
    double den = 0;
    num *= beta3;
    for (DoubleTensor& t : all) {
      if (k == 1) t.s["p0"] = t.p;
      Doubles &m = t.state("m"), &v = t.state("v"), &s = t.state("s");
      for (size_t i = 0; i < t.p.size(); ++i) {
        const double g = t.g[i] + (decoupled ? 0 : 0.1 * t.p[i]);
        m[i] = 0.9 * m[i] + d * 0.1 * g;
        v[i] = 0.999 * v[i] + d * d * 0.001 * g * g;
        if (i % slice != 0) continue;
        num += d / d0 * dlr * g * (t.s["p0"][i] - t.p[i]);
        s[i] = beta3 * s[i] + d / d0 * (safeguard ? d : dlr) * g;
        den += std::abs(s[i]);
      }
    }
    const double estimate = num / den;
    if (d == d0) d = std::max(d, estimate);
    d_max = std::max(d_max, estimate);
    d = d_max;
    for (DoubleTensor& t : all)
      for (size_t i = 0; i < t.p.size(); ++i) {
        if (decoupled) t.p[i] -= 0.1 * dlr * t.p[i];
        t.p[i] -= dlr * t.s["m"][i] / (std::sqrt(t.s["v"][i]) + d * 1e-8);
      }
  }
};

void double_schedule_free(DoubleTensor& t, int k) {
  if (k == 1) t.s["z"] = t.p, t.s["sums"] = {0, 0};
  Doubles &z = t.s["z"], &v = t.state("v"), &sums = t.s["sums"];
  const double lr = t.lr * std::min(1.0, k / 10.0);
  sums[0] = std::max(sums[0], lr);
  sums[1] += sums[0] * sums[0];
  const double c = sums[0] * sums[0] / sums[1];
  for (size_t i = 0; i < t.p.size(); ++i) {
    v[i] = 0.999 * v[i] + 0.001 * t.g[i] * t.g[i];
    const double g = t.g[i] / (std::sqrt(v[i] / (1 - std::pow(0.999, k))) + 1e-8) + 0.1 * t.p[i];
    t.p[i] += c * (z[i] - t.p[i]);
    t.p[i] += lr * (0.9 * (1 - c) - 1) * g;
    z[i] -= lr * g;
  }
}

void double_sgd(DoubleTensor& t, int k, double momentum, double dampening, double decay, bool nesterov) {
  Doubles& b = t.state("b");
  for (size_t i = 0; i < t.p.size(); ++i) {
    const double g = t.g[i] + decay * t.p[i];
    b[i] = k == 1 ? g : momentum * b[i] + (1 - dampening) * g;
    t.p[i] -= t.lr * (nesterov ? g + momentum * b[i] : b[i]);
  }
}

// In the order of optimiser_cases().
std::vector<Step> double_steps() {
  return {
      each(double_adamw),
      each(double_adamw8bit),
      each(double_lion),
      each(double_lion8bit),
      each([](DoubleTensor& t, int k) { double_adafactor(t, k, true, 0, 0); }),
      each([](DoubleTensor& t, int k) { double_adafactor(t, k, false, 0.9, 0.1); }),
      DoubleProdigy{true, true, true, 1},
      DoubleProdigy{false, false, false, 3},
      each(double_schedule_free),
      each([](DoubleTensor& t, int k) {
        const double part = k / 100.0, l1 = std::log(0.9), l3 = std::log(0.9999);
        double_ademamix(t, k, 5 * part, std::min(0.9999, std::exp(l1 * l3 / ((1 - part) * l3 + part * l1))));
      }),
      each([](DoubleTensor& t, int k) {
        double_ademamix(t, k, 5, 0.9999);
        if (t.p.size() < 4096) return;
        store_8bit(t.state("m1"), true);
        store_8bit(t.state("m2"), true);
        store_8bit(t.state("v"), false);
      }),
      each(double_came),
      each([](DoubleTensor& t, int k) { double_sgd(t, k, 0, 0, 0, false); }),
      each([](DoubleTensor& t, int k) { double_sgd(t, k, 0.9, 0.1, 0.1, false); }),
      each([](DoubleTensor& t, int k) { double_sgd(t, k, 0.9, 0, 0, true); }),
  };
}

TEST(OptimiserFormulas, FiftyStepsFollowThem) {
  const std::vector<Step> steps = double_steps();
  ASSERT_EQ(steps.size(), optimiser_cases().size());
  for (size_t c = 0; c < steps.size(); ++c) {
    const OptimiserCase& test = optimiser_cases()[c];
    const std::string name = test.type;
    const bool eight_bits = name.ends_with("8bit"), prodigy = name == "prodigy";
    OptimiserBench bench;
    const double ratio = prodigy ? 1.0 : 4.0;
    std::vector<DoubleTensor> expected;
    for (size_t i = 0; i < bench.tensors.size(); ++i)
      expected.push_back(
          {bench.tensors[i].value.shape(), test.rate * (i < 3 ? 1 : ratio), bench.tensors[i].value.to_doubles(), {}, {}});
    const auto optimiser = make_optimiser(test.type, test.args, bench.groups(test.rate, ratio));
    for (int k = 1; k <= 50; ++k) {
      const std::vector<Tensor> gradients = bench.gradients(k);
      // The factor and the scale are powers of two, so that both sides see the same numbers.
      for (size_t i = 0; i < expected.size(); ++i) {
        expected[i].g = gradients[i].to_doubles();
        for (double& g : expected[i].g) g *= 0.5;
        expected[i].lr = test.rate * (i < 3 ? 1 : ratio) * (k % 2 == 0 ? 0.5 : 1.0);
      }
      steps[c](expected, k);
      optimiser->step(gradients, k % 2 == 0 ? 0.5 : 1.0, 0.5);
    }
    double worst = 0, total = 0, count = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      const std::vector<float> actual = bench.tensors[i].value.to_floats();
      for (size_t e = 0; e < actual.size(); ++e) {
        const double error = std::abs(static_cast<double>(actual[e]) - expected[i].p[e]) / (1 + std::abs(expected[i].p[e]));
        ASSERT_TRUE(std::isfinite(error)) << name << " tensor " << i << " element " << e;
        worst = std::max(worst, error), total += error, ++count;
      }
    }
    RecordProperty(fmt::format("{}_{}", name, c), fmt::format("worst {:.3g} mean {:.3g}", worst, total / count));
    // A state between two codes may be rounded to the other one; such an element takes another step, rarely more than one rate
    // long. Prodigy's d is a quotient of sums in which F32 parameters are subtracted from their start.
    EXPECT_LE(worst, eight_bits ? ratio * test.rate : prodigy ? 4e-5 : 2e-6) << name << " case " << c;
    EXPECT_LE(total / count, eight_bits ? 6e-7 : prodigy ? 4e-6 : 3e-7) << name << " case " << c;
  }
}

TEST(OptimiserFormulas, OneDimensionalTensorsMayBeLeftOutOfWeightDecay) {
  for (const bool decay_all : {true, false}) {
    OptimiserBench bench;
    const auto before = bench.floats();
    const auto optimiser = make_optimiser("sgd", {"weight_decay=0.5"}, bench.groups(0.1), 0, decay_all);
    std::vector<Tensor> zeros;
    for (const TrainedTensor& t : bench.tensors) {
      zeros.push_back(Tensor::like(t.value));
      zeros.back().fill(0);
    }
    optimiser->step(zeros, 1.0, 1.0);
    const auto after = bench.floats();
    for (size_t i = 0; i < before.size(); ++i) {
      const bool decays = decay_all || bench.tensors[i].value.rank() > 1;
      EXPECT_NEAR(after[i][0], before[i][0] * (decays ? 0.95f : 1.0f), 1e-6) << i;
    }
  }
}

}  // namespace

}  // namespace flux2
