#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/thread_pool.h"
#include "weights/adapter_file.h"

namespace flux2 {

// A matrix of f32 in ordinary memory, row-major.
struct HostMatrix {
  int64_t rows = 0, columns = 0;
  std::vector<float> values;

  HostMatrix() = default;
  HostMatrix(int64_t r, int64_t c) : rows(r), columns(c), values(static_cast<size_t>(r * c)) {}
  float* row(int64_t i) { return values.data() + i * columns; }
  const float* row(int64_t i) const { return values.data() + i * columns; }
};

HostMatrix matrix_of(const StoredTensor& stored);  // all axes after the first are joined into one
HostMatrix product(const HostMatrix& a, const HostMatrix& b, ThreadPool& threads);

// Row `row` of the weight that a module changes, as f32. Called from several threads.
using ReadRow = std::function<void(int64_t row, float* out)>;

// One module of an adapter as a change of a weight W [out, in]. It is computed row by row: neither W nor the change is ever
// completely in memory.
class AdapterChange {
 public:
  // Throws BadFile if the tensors of the module do not fit together.
  explicit AdapterChange(const AdapterModule& module);

  int64_t out() const { return out_; }
  int64_t in() const { return in_; }  // 0 for OFT, which fits any width

  // Whether the change is just up · down, so that it can be computed separately from any weight. The scale is included in `up`.
  bool is_low_rank() const { return kind_ == AdapterKind::Lora && magnitude_.empty(); }
  const HostMatrix& down() const { return a_; }  // [r, in]
  const HostMatrix& up() const { return b_; }    // [out, r]

  // Must be called before rows are requested. DoRA by columns depends on the whole weight, which this reads once; the other kinds
  // ignore it.
  void look_at(const ReadRow& weight);

  // sums[i] += strength · (W' − W)[begin + i] for rows up to `end`; sums is [end − begin, columns], and W has `columns` columns.
  void add_rows(int64_t begin, int64_t end, const ReadRow& weight, int64_t columns, float strength, float* sums) const;

 private:
  void read_lora(const AdapterModule& m);
  void read_loha(const AdapterModule& m);
  void read_lokr(const AdapterModule& m);
  void read_oft(const AdapterModule& m);
  void read_magnitude(const AdapterModule& m);
  void delta_row(int64_t row, float* out) const;  // of ΔW; not of OFT
  void add_rotated(int64_t begin, int64_t end, const ReadRow& weight, int64_t columns, float strength, float* sums) const;

  AdapterKind kind_ = AdapterKind::Lora;
  int64_t out_ = 0, in_ = 0;
  // LoRA: down, up. LoHa: w1_b, w1_a, w2_b, w2_a with ΔW = (b·a) ⊙ (d·c). LoKr: ΔW = a ⊗ b. Difference: a.
  HostMatrix a_, b_, c_, d_;
  std::vector<HostMatrix> rotations_;  // of OFT, one for each block of rows
  std::vector<float> rescale_;
  std::vector<float> magnitude_;  // of DoRA
  bool by_columns_ = false;       // of the magnitudes
  std::vector<float> column_factors_;
};

}  // namespace flux2
