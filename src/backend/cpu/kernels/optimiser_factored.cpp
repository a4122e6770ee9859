#include <memory>

#include "backend/cpu/kernels/optimiser.h"

// Adafactor and CAME keep the second moment of a matrix as the means of its rows and columns. A step therefore needs several
// passes: means, the size of the update, then the update; CAME takes means of its residuals in between. Vectors keep every value.
//
// A band is a number of rows that depends on the shape alone. One task adds up the columns of one band, and the bands are added
// in order, so results do not depend on the number of threads.
namespace flux2::cpu {

namespace {

int64_t rows_of_band(const OptimiserTensor& t) { return t.factored ? std::max<int64_t>(64, 65536 / t.columns) : 1; }
int64_t bands_of(const OptimiserTensor& t) { return (t.rows + rows_of_band(t) - 1) / rows_of_band(t); }
int64_t matrices_of(const OptimiserTensor& t) { return t.count / (t.rows * t.columns); }

// What the passes over one tensor leave for each other.
struct FactoredWork {
  std::vector<float> row_means, row_factors, column_factors;  // [matrices, rows] and [matrices, columns]
  std::vector<float> column_sums;                             // [matrices, bands, columns]
  std::vector<double> update_squares, p_squares;              // [matrices, bands]
  float clip = 1, rate = 0;
};

class FactoredStep {
 public:
  explicit FactoredStep(const OptimiseArgs& a) : a_(a), work_(a.tensors.size()) {
    for (size_t i = 0; i < work_.size(); ++i) {
      const OptimiserTensor& t = a.tensors[i];
      const auto size = [](int64_t n) { return static_cast<size_t>(n); };
      work_[i].update_squares.resize(size(bands(t)));
      work_[i].p_squares.resize(size(bands(t)));
      if (!t.factored) continue;
      work_[i].row_means.resize(size(matrices_of(t) * t.rows));
      work_[i].row_factors.resize(size(matrices_of(t) * t.rows));
      work_[i].column_factors.resize(size(matrices_of(t) * t.columns));
      work_[i].column_sums.resize(size(bands(t) * t.columns));
    }
  }

  void adafactor() {
    average_squares();
    measure_updates();
    for_rows([&](const OptimiserTensor& t, FactoredWork& w, int64_t row, const float* g) {
      std::vector<float> p(static_cast<size_t>(t.columns));
      load_parameters(t, row * t.columns, t.columns, p.data());
      float* m = a_.numbers.momentum ? static_cast<float*>(t.state[2]) + row * t.columns : nullptr;
      for (int64_t c = 0; c < t.columns; ++c) {
        OptimiserElement e{p[static_cast<size_t>(c)], g[c], m ? m[c] : 0.0f};
        adafactor_update(a_.numbers, t, w.rate, update(t, w, row, c, g[c]) * w.clip, e);
        p[static_cast<size_t>(c)] = e.p;
        if (m) m[c] = e.a;
      }
      store_parameters(a_, t, row * t.columns, t.columns, p.data());
    });
  }

  void came() {
    average_squares();
    measure_updates();
    // The residuals are averaged with factors of their own, after the last use of the old ones.
    average(
        [&](const OptimiserTensor& t, FactoredWork& w, int64_t row, float* values) {
          float* m = static_cast<float*>(t.state[2]) + row * t.columns;
          for (int64_t c = 0; c < t.columns; ++c) {
            const float h = update(t, w, row, c, values[c]) * w.clip;
            m[c] = came_moment(a_.numbers, m[c], h);
            values[c] = came_residual(a_.numbers, m[c], h);
          }
        },
        3, a_.numbers.beta3, a_.numbers.rest3);
    for_rows([&](const OptimiserTensor& t, FactoredWork& w, int64_t row, const float*) {
      std::vector<float> p(static_cast<size_t>(t.columns));
      load_parameters(t, row * t.columns, t.columns, p.data());
      const float* m = static_cast<const float*>(t.state[2]) + row * t.columns;
      for (int64_t c = 0; c < t.columns; ++c) {
        float& value = p[static_cast<size_t>(c)];
        value = came_update(t, value, t.factored ? factored(t, w, row, c) * m[c] : m[c]);
      }
      store_parameters(a_, t, row * t.columns, t.columns, p.data());
    });
  }

 private:
  static int64_t bands(const OptimiserTensor& t) { return matrices_of(t) * bands_of(t); }

  static float factored(const OptimiserTensor& t, const FactoredWork& w, int64_t row, int64_t column) {
    return w.row_factors[static_cast<size_t>(row)] * w.column_factors[static_cast<size_t>(row / t.rows * t.columns + column)];
  }

  // The update of one element before clipping.
  static float update(const OptimiserTensor& t, const FactoredWork& w, int64_t row, int64_t column, float g) {
    if (t.factored) return factored(t, w, row, column) * g;
    return inverse_root(static_cast<const float*>(t.state[0])[row * t.columns + column]) * g;
  }

  // Calls body(tensor, work, band, first row, end row) for every band of every matrix; rows count over all matrices.
  template <class Body>
  void for_bands(Body&& body) {
    for_parts(
        a_, [&](size_t i) { return bands(a_.tensors[i]); },
        [&](size_t i, int64_t band) {
          const OptimiserTensor& t = a_.tensors[i];
          const int64_t matrix = band / bands_of(t), start = band % bands_of(t) * rows_of_band(t);
          body(t, work_[i], band, matrix * t.rows + start, matrix * t.rows + std::min(t.rows, start + rows_of_band(t)));
        });
  }

  // Calls body(tensor, work, row, gradients) for every row.
  template <class Body>
  void for_rows(Body&& body) {
    for_bands([&](const OptimiserTensor& t, FactoredWork& w, int64_t, int64_t begin, int64_t end) {
      std::vector<float> g(static_cast<size_t>(t.columns));
      for (int64_t row = begin; row < end; ++row) {
        load_gradients(t, a_.numbers.gradient_scale, row * t.columns, t.columns, g.data());
        body(t, w, row, g.data());
      }
    });
  }

  // state[at] and state[at + 1] ← moving averages of the means of rows and columns of values(…), and the factors from them. In
  // vectors `values` is only called.
  template <class Values>
  void average(Values&& values, int at, float beta, float rest) {
    for_bands([&](const OptimiserTensor& t, FactoredWork& w, int64_t band, int64_t begin, int64_t end) {
      std::vector<float> v(static_cast<size_t>(t.columns));
      float* sums = t.factored ? w.column_sums.data() + band * t.columns : nullptr;
      if (sums) std::fill_n(sums, t.columns, 0.0f);
      for (int64_t row = begin; row < end; ++row) {
        load_gradients(t, a_.numbers.gradient_scale, row * t.columns, t.columns, v.data());
        values(t, w, row, v.data());
        if (!sums) continue;
        double total = 0;
        for (int64_t c = 0; c < t.columns; ++c) {
          const float value = v[static_cast<size_t>(c)];
          sums[c] += value;
          total += static_cast<double>(value);
        }
        w.row_means[static_cast<size_t>(row)] = static_cast<float>(total / static_cast<double>(t.columns));
      }
    });
    for_parts(
        a_, [&](size_t i) { return a_.tensors[i].factored ? matrices_of(a_.tensors[i]) : 0; },
        [&](size_t i, int64_t matrix) { finish(a_.tensors[i], work_[i], matrix, at, beta, rest); });
  }

  static void finish(const OptimiserTensor& t, FactoredWork& w, int64_t matrix, int at, float beta, float rest) {
    float* rows = static_cast<float*>(t.state[at]) + matrix * t.rows;
    float* columns = static_cast<float*>(t.state[at + 1]) + matrix * t.columns;
    double total = 0;
    for (int64_t r = 0; r < t.rows; ++r) {
      rows[r] = averaged(rows[r], beta, rest, w.row_means[static_cast<size_t>(matrix * t.rows + r)]);
      total += static_cast<double>(rows[r]);
    }
    const float mean = static_cast<float>(total / static_cast<double>(t.rows));
    for (int64_t r = 0; r < t.rows; ++r) w.row_factors[static_cast<size_t>(matrix * t.rows + r)] = row_factor(rows[r], mean);
    std::vector<double> sums(static_cast<size_t>(t.columns));
    for (int64_t band = matrix * bands_of(t); band < (matrix + 1) * bands_of(t); ++band)
      for (int64_t c = 0; c < t.columns; ++c)
        sums[static_cast<size_t>(c)] += static_cast<double>(w.column_sums[static_cast<size_t>(band * t.columns + c)]);
    for (int64_t c = 0; c < t.columns; ++c) {
      const auto column_mean = static_cast<float>(sums[static_cast<size_t>(c)] / static_cast<double>(t.rows));
      columns[c] = averaged(columns[c], beta, rest, column_mean);
      w.column_factors[static_cast<size_t>(matrix * t.columns + c)] = inverse_root(columns[c]);
    }
  }

  void average_squares() {
    average(
        [&](const OptimiserTensor& t, FactoredWork&, int64_t row, float* values) {
          float* v = t.factored ? nullptr : static_cast<float*>(t.state[0]) + row * t.columns;
          for (int64_t c = 0; c < t.columns; ++c) {
            values[c] = values[c] * values[c] + a_.numbers.eps;
            if (v) v[c] = averaged(v[c], a_.numbers.beta2, a_.numbers.rest2, values[c]);
          }
        },
        0, a_.numbers.beta2, a_.numbers.rest2);
  }

  // The root mean squares of updates and parameters, and what follows from them.
  void measure_updates() {
    for_bands([&](const OptimiserTensor& t, FactoredWork& w, int64_t band, int64_t begin, int64_t end) {
      std::vector<float> g(static_cast<size_t>(t.columns)), p(static_cast<size_t>(t.columns));
      double updates = 0, parameters = 0;
      for (int64_t row = begin; row < end; ++row) {
        load_gradients(t, a_.numbers.gradient_scale, row * t.columns, t.columns, g.data());
        load_parameters(t, row * t.columns, t.columns, p.data());
        for (int64_t c = 0; c < t.columns; ++c) {
          const double h = update(t, w, row, c, g[static_cast<size_t>(c)]), value = p[static_cast<size_t>(c)];
          updates += h * h;
          parameters += value * value;
        }
      }
      w.update_squares[static_cast<size_t>(band)] = updates;
      w.p_squares[static_cast<size_t>(band)] = parameters;
    });
    for (size_t i = 0; i < work_.size(); ++i) {
      FactoredWork& w = work_[i];
      double updates = 0, parameters = 0;
      for (const double v : w.update_squares) updates += v;
      for (const double v : w.p_squares) parameters += v;
      w.clip = clip_factor(a_.numbers, updates, static_cast<double>(a_.tensors[i].count));
      w.rate = adafactor_rate(a_.numbers, a_.tensors[i], parameters);
    }
  }

  const OptimiseArgs& a_;
  std::vector<FactoredWork> work_;
};

}  // namespace

void optimise_factored(const OptimiseArgs& a) {
  FactoredStep step(a);
  if (a.rule == OptimiserRule::Adafactor) step.adafactor();
  else step.came();
}

}  // namespace flux2::cpu
