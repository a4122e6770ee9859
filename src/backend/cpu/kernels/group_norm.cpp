#include <cmath>

#include "backend/cpu/kernels/rows.h"
#include "backend/cpu/kernels/scalar_table.h"

namespace flux2::cpu {

namespace {

// Positions are taken in parts of fixed size, so that no sum depends on the number of threads; a part of the usual
// widths stays in the second-level cache while it is read twice.
constexpr int64_t kPart = 128;

struct Layout {
  int64_t batch, positions, channels, groups, width, parts;  // width: channels of a group

  Layout(const Tensor& x, int group_count)
      : batch(x.dim(0)),
        positions(x.dim(0) * x.dim(-1) == 0 ? 0 : x.numel() / (x.dim(0) * x.dim(-1))),
        channels(x.dim(-1)),
        groups(group_count),
        width(channels / groups),
        parts((positions + kPart - 1) / kPart) {}

  int64_t elements() const { return positions * width; }  // of one group
  int64_t part_positions(int64_t part) const { return std::min(kPart, positions - part * kPart); }
  int64_t row(int64_t b, int64_t position) const { return (b * positions + position) * channels; }

  // Runs body(b, part) for every part of every sample.
  template <class F>
  void for_parts(CpuStream& stream, F&& body) const {
    parallel_rows(stream, batch * parts, kPart * channels, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) body(i / parts, i % parts);
    });
  }
};

struct Moments {
  double mean = 0, factor = 0;  // factor = 1 / sqrt(variance + eps)
};

// Mean and deviation are found part by part in C while the part is in the cache, then merged in f64 by the rule
// for the union of two samples: no cancellation, and x is read from memory once.
template <class C>
std::vector<Moments> moments_of(const Layout& l, const Tensor& x, CpuStream& stream, float eps) {
  const auto& math = stream.cpu().row_math<C>();
  std::vector<double> means(static_cast<size_t>(l.batch * l.parts * l.groups)), deviations(means.size());
  l.for_parts(stream, [&](int64_t b, int64_t part) {
    const int64_t n = l.part_positions(part);
    const double count = static_cast<double>(n * l.width);
    Reader<C> xs(x);
    const auto channels = static_cast<size_t>(l.channels);
    std::vector<C> sums(channels), centre(channels), squares(channels);
    for (int64_t p = 0; p < n; ++p) math.add(sums.data(), xs(l.row(b, part * kPart + p), l.channels), sums.data(), l.channels);
    double* mean = means.data() + (b * l.parts + part) * l.groups;
    for (int64_t c = 0; c < l.channels; ++c) mean[c / l.width] += sums[static_cast<size_t>(c)] / count;
    for (int64_t c = 0; c < l.channels; ++c) centre[static_cast<size_t>(c)] = static_cast<C>(mean[c / l.width]);
    for (int64_t p = 0; p < n; ++p)
      math.add_deviation(xs(l.row(b, part * kPart + p), l.channels), centre.data(), squares.data(), l.channels);
    double* deviation = deviations.data() + (b * l.parts + part) * l.groups;
    for (int64_t c = 0; c < l.channels; ++c) deviation[c / l.width] += squares[static_cast<size_t>(c)];
  });

  std::vector<Moments> merged(static_cast<size_t>(l.batch * l.groups));
  for (int64_t i = 0; i < l.batch * l.groups; ++i) {
    const int64_t b = i / l.groups, group = i % l.groups;
    double count = 0, mean = 0, deviation = 0;
    for (int64_t part = 0; part < l.parts; ++part) {
      const auto at = static_cast<size_t>((b * l.parts + part) * l.groups + group);
      const double more = static_cast<double>(l.part_positions(part) * l.width), difference = means[at] - mean;
      deviation += deviations[at] + difference * difference * count * more / (count + more);
      mean += difference * more / (count + more);
      count += more;
    }
    merged[static_cast<size_t>(i)] = {mean, 1.0 / std::sqrt(deviation / count + static_cast<double>(eps))};
  }
  return merged;
}

}  // namespace

// (x − mean) · factor · weight + bias is one multiplication and one addition per element.
void group_norm(const GroupNormArgs& a) {
  const Layout l(a.x, a.groups);
  CpuStream& stream = cpu_stream(a.y);
  with_compute_type(a.y.dtype(), [&]<class C>() {
    const auto& math = stream.cpu().row_math<C>();
    const std::vector<Moments> moments = moments_of<C>(l, a.x, stream, a.eps);
    const std::vector<double> weight = values_of<double>(a.weight), bias = values_of<double>(a.bias);
    std::vector<C> slopes(static_cast<size_t>(l.batch * l.channels)), offsets(slopes.size());
    for (int64_t i = 0; i < l.batch * l.channels; ++i) {
      const auto c = static_cast<size_t>(i % l.channels);
      const auto [mean, factor] = moments[static_cast<size_t>(i / l.width)];
      slopes[static_cast<size_t>(i)] = static_cast<C>(factor * weight[c]);
      offsets[static_cast<size_t>(i)] = static_cast<C>(bias[c] - mean * factor * weight[c]);
    }
    const auto apply = a.silu ? math.affine_silu : math.affine;
    l.for_parts(stream, [&](int64_t b, int64_t part) {
      Reader<C> xs(a.x);
      Writer<C> ys(a.y);
      for (int64_t p = 0; p < l.part_positions(part); ++p) {
        const int64_t at = l.row(b, part * kPart + p);
        const C* x = xs(at, l.channels);
        C* y = ys.begin(at, l.channels);
        apply(x, slopes.data() + b * l.channels, offsets.data() + b * l.channels, y, l.channels);
        ys.end();
      }
    });
  });
}

// With x̂ the normalised input and g = weight · dy: dbias = Σ dy, dweight = Σ dy · x̂ over samples and positions, and
// dx = factor · (g − mean(g) − x̂ · mean(g · x̂)), means over the group, which are sums of the per-channel ones.
void group_norm_grad(const GroupNormGradArgs& a) {
  const Layout l(a.x, a.groups);
  CpuStream& stream = cpu_stream(a.dx);
  with_compute_type(a.dx.dtype(), [&]<class C>() {
    const std::vector<Moments> moments = moments_of<C>(l, a.x, stream, a.eps);
    const std::vector<double> weight = values_of<double>(a.weight);
    const auto moment = [&](int64_t b, int64_t c) { return moments[static_cast<size_t>(b * l.groups + c / l.width)]; };

    // Per part and channel: Σ dy, then Σ dy · x̂.
    std::vector<C> sums(static_cast<size_t>(l.batch * l.parts * 2 * l.channels));
    l.for_parts(stream, [&](int64_t b, int64_t part) {
      Reader<C> xs(a.x), dys(a.dy);
      C* plain = sums.data() + (b * l.parts + part) * 2 * l.channels;
      C* product = plain + l.channels;
      for (int64_t p = 0; p < l.part_positions(part); ++p) {
        const int64_t at = l.row(b, part * kPart + p);
        const C *x = xs(at, l.channels), *dy = dys(at, l.channels);
        for (int64_t c = 0; c < l.channels; ++c) {
          const Moments m = moment(b, c);
          plain[c] += dy[c];
          product[c] += dy[c] * static_cast<C>((x[c] - m.mean) * m.factor);
        }
      }
    });

    std::vector<double> dbias(static_cast<size_t>(l.channels)), dweight(dbias.size());
    std::vector<double> mean_g(static_cast<size_t>(l.batch * l.groups)), mean_gx(mean_g.size());
    for (int64_t i = 0; i < l.batch * l.parts; ++i) {
      for (int64_t c = 0; c < l.channels; ++c) {
        const auto at = static_cast<size_t>(i * 2 * l.channels + c), channel = static_cast<size_t>(c);
        const auto group = static_cast<size_t>(i / l.parts * l.groups + c / l.width);
        const double plain = sums[at], product = sums[at + static_cast<size_t>(l.channels)];
        dbias[channel] += plain;
        dweight[channel] += product;
        mean_g[group] += weight[channel] * plain / static_cast<double>(l.elements());
        mean_gx[group] += weight[channel] * product / static_cast<double>(l.elements());
      }
    }
    store(a.dbias.dtype(), dbias.data(), a.dbias.raw(), 1, l.channels);
    store(a.dweight.dtype(), dweight.data(), a.dweight.raw(), 1, l.channels);

    l.for_parts(stream, [&](int64_t b, int64_t part) {
      Reader<C> xs(a.x), dys(a.dy);
      Writer<C> dxs(a.dx);
      for (int64_t p = 0; p < l.part_positions(part); ++p) {
        const int64_t at = l.row(b, part * kPart + p);
        const C *x = xs(at, l.channels), *dy = dys(at, l.channels);
        C* dx = dxs.begin(at, l.channels);
        for (int64_t c = 0; c < l.channels; ++c) {
          const Moments m = moment(b, c);
          const auto group = static_cast<size_t>(b * l.groups + c / l.width);
          const double normal = (x[c] - m.mean) * m.factor;
          const double g = weight[static_cast<size_t>(c)] * dy[c];
          dx[c] = static_cast<C>(m.factor * (g - mean_g[group] - normal * mean_gx[group]));
        }
        dxs.end();
      }
    });
  });
}

}  // namespace flux2::cpu
