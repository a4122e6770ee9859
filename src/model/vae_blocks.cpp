#include "model/vae_blocks.h"

#include <fmt/format.h>

#include "ops/arithmetic.h"
#include "ops/attention.h"
#include "ops/view.h"

namespace flux2 {

ResBlock::ResBlock(int64_t in, int64_t out, int groups)
    : norm1(in, groups),
      norm2(out, groups),
      conv1(conv3x3(in, out)),
      conv2(conv3x3(out, out)),
      shortcut(in == out ? Conv(0, 0, 1) : conv1x1(in, out)) {}

Tensor ResBlock::operator()(const Tensor& x) const {
  const Tensor h = norm2.then_silu(conv1(norm1.then_silu(x)));
  return conv2.added_to(shortcut.in ? shortcut(x) : x, h);
}

void ResBlock::visit(const std::string& p, const ParameterVisitor& visitor) {
  norm1.visit(p + "norm1", visitor);
  conv1.visit(p + "conv1", visitor);
  norm2.visit(p + "norm2", visitor);
  conv2.visit(p + "conv2", visitor);
  if (shortcut.in) shortcut.visit(p + "nin_shortcut", visitor);
}

AttnBlock::AttnBlock(int64_t c, int groups)
    : norm(c, groups), q(conv1x1(c, c)), k(conv1x1(c, c)), v(conv1x1(c, c)), proj_out(conv1x1(c, c)) {}

Tensor AttnBlock::operator()(const Tensor& x) const {
  const Tensor n = norm(x);
  const Shape one_head{x.dim(0), x.dim(1) * x.dim(2), 1, x.dim(3)};
  const Tensor a = attention(reshape(q(n), one_head), reshape(k(n), one_head), reshape(v(n), one_head));
  return x + proj_out(reshape(a, x.shape()));
}

void AttnBlock::visit(const std::string& p, const ParameterVisitor& visitor) {
  norm.visit(p + "norm", visitor);
  q.visit(p + "q", visitor);
  k.visit(p + "k", visitor);
  v.visit(p + "v", visitor);
  proj_out.visit(p + "proj_out", visitor);
}

void MidBlock::visit(const std::string& p, const ParameterVisitor& visitor) {
  block_1.visit(p + "block_1.", visitor);
  attn_1.visit(p + "attn_1.", visitor);
  block_2.visit(p + "block_2.", visitor);
}

void Level::visit(const std::string& p, const char* resample_name, const ParameterVisitor& visitor) {
  for (size_t b = 0; b < blocks.size(); ++b) blocks[b].visit(fmt::format("{}block.{}.", p, b), visitor);
  if (resample.in) resample.visit(p + resample_name, visitor);
}

}  // namespace flux2
