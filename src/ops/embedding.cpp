#include "ops/embedding.h"

#include "autograd/grad.h"
#include "ops/empty.h"

namespace flux2 {

Tensor embedding(const Tensor& ids, const Tensor& table, DType dtype) {
  require(ids.dtype() == DType::I32 && table.rank() == 2, "embedding: ids {} into a table {}", ids.shape(), table.shape());
  Tensor y = Tensor::like(ids, dtype, ids.shape().append(table.dim(1)));
  require_terms("embedding", table.dim(0), y.shape());
  if (y.numel() > 0) ids.device().kernels().embedding({ids, table, y});
  return record("embedding", std::move(y), {table}, [ids, table = table.detached()](const Tensor& dy, GradSink& sink) {
    Tensor dtable = Tensor::like(dy, table.dtype(), table.shape());
    dtable.fill(0.0);
    dy.device().kernels().embedding_grad({ids, dy.contiguous(), dtable});
    sink.add(0, dtable);
  });
}

}  // namespace flux2
