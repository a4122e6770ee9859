#include "backend/cpu/kernels/rows.h"
#include "backend/cpu/kernels/scalar_table.h"

namespace flux2::cpu {

namespace {

// The ids in row-major order. They come from outside, so each is held against the size of the table.
std::vector<int64_t> checked_ids(const Tensor& ids, int64_t vocabulary) {
  const Walk<1> walk(ids.shape(), {ids.strides()});
  std::vector<int64_t> values(static_cast<size_t>(walk.count()));
  for (int64_t i = 0; i < walk.count(); ++i) {
    const int32_t id = ids.data<int32_t>()[walk.at(i)[0]];
    require(id >= 0 && id < vocabulary, "embedding: id {} in a table of {} rows", id, vocabulary);
    values[static_cast<size_t>(i)] = id;
  }
  return values;
}

}  // namespace

void embedding(const EmbeddingArgs& a) {
  const int64_t width = a.table.dim(1);
  const std::vector<int64_t> ids = checked_ids(a.ids, a.table.dim(0));
  const auto rows = rows_of(a.y);
  const float* scales = a.table.scales().defined() ? a.table.scales().data<float>() : nullptr;
  with_compute_type(a.y.dtype(), [&]<class C>() {
    parallel_rows(cpu_stream(a.y), rows.count(), width, [&](int64_t begin, int64_t end) {
      Writer<C> ys(a.y);
      for (int64_t r = begin; r < end; ++r) {
        C* y = ys.begin(rows.at(r)[0], width);
        const int64_t id = ids[static_cast<size_t>(r)];
        load(a.table.dtype(), element(a.table, id * a.table.stride(0)), 1, width, y);
        if (scales) {
          const auto factor = static_cast<C>(scales[a.table.scales().numel() == 1 ? 0 : id]);
          for (int64_t i = 0; i < width; ++i) y[i] *= factor;
        }
        ys.end();
      }
    });
  });
}

// An id may occur many times: threads share out the columns, and each adds the rows in their order.
void embedding_grad(const EmbeddingGradArgs& a) {
  const int64_t width = a.dtable.dim(1);
  const std::vector<int64_t> ids = checked_ids(a.ids, a.dtable.dim(0));
  const auto rows = rows_of(a.dy);
  with_compute_type(a.dy.dtype(), [&]<class C>() {
    const auto& math = cpu_stream(a.dtable).cpu().row_math<C>();
    parallel_rows(cpu_stream(a.dtable), width, rows.count(), [&](int64_t begin, int64_t end) {
      const int64_t n = end - begin;
      Reader<C> dys(a.dy), before(a.dtable);
      Writer<C> after(a.dtable);
      for (int64_t r = 0; r < rows.count(); ++r) {
        const int64_t at = ids[static_cast<size_t>(r)] * a.dtable.stride(0) + begin;
        const C* old = before(at, n);
        math.add(old, dys(rows.at(r)[0] + begin, n), after.begin(at, n), n);
        after.end();
      }
    });
  });
}

}  // namespace flux2::cpu
