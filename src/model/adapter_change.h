#pragma once

#include <cstdint>
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

HostMatrix matrix_of(const StoredTensor& stored);  // axes behind the first are joined
HostMatrix product(const HostMatrix& a, const HostMatrix& b, ThreadPool& threads);

// One module of an adapter as a change of a weight W [out, in].
class AdapterChange {
 public:
  // Throws BadFile when the parts do not fit one another.
  explicit AdapterChange(const AdapterModule& module, ThreadPool& threads);

  int64_t out() const { return out_; }
  int64_t in() const { return in_; }

  // Whether the change is up · down alone, so that it can be computed beside any weight. The scale is inside `up`.
  bool is_low_rank() const { return low_rank_ && magnitude_.empty(); }
  const HostMatrix& down() const { return down_; }  // [r, in]
  const HostMatrix& up() const { return up_; }      // [out, r]

  // sum += strength · (W' − W), for DoRA and OFT from the weight itself.
  void add_to(HostMatrix& sum, const HostMatrix& weight, double strength, ThreadPool& threads) const;

 private:
  void read_lora(const AdapterModule& m);
  void read_loha(const AdapterModule& m, ThreadPool& threads);
  void read_lokr(const AdapterModule& m, ThreadPool& threads);
  void read_oft(const AdapterModule& m);
  void add_oft(HostMatrix& sum, const HostMatrix& weight, float strength) const;
  void add_dora(HostMatrix& sum, const HostMatrix& weight, const HostMatrix& delta, float strength) const;

  bool low_rank_ = false;
  int64_t out_ = 0, in_ = 0;
  HostMatrix down_, up_;
  HostMatrix dense_;                   // the change itself where it has no low rank
  std::vector<HostMatrix> rotations_;  // of OFT, one for each block of rows
  std::vector<float> rescale_;
  std::vector<float> magnitude_;  // of DoRA
  bool by_columns_ = false;       // of the magnitudes
};

}  // namespace flux2
