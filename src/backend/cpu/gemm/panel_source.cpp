#include "backend/cpu/gemm/panel_source.h"

#include <algorithm>

namespace flux2::gemm {

template <class T>
void RowPanels<T>::pack(int64_t r, int count, int64_t k, int64_t n, void* scratch, void* panel) const {
  const T* rows[kMaxTileRows];
  rows_.rows(r, count, k, n, rows, static_cast<T*>(scratch));
  std::fill(rows + count, rows + width_, rows[count - 1]);
  pack_(n, rows, panel);
}

template class RowPanels<float>;
template class RowPanels<bf16>;
template class RowPanels<int8_t>;

}  // namespace flux2::gemm
