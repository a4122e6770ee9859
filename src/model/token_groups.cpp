#include "model/token_groups.h"

#include <fmt/format.h>

#include "ops/view.h"

namespace flux2 {

Tensor TokenGroups::joined(const Tensor& txt, const Tensor& img) const {
  std::vector<Tensor> parts;
  for (const Piece& p : pieces) parts.push_back(narrow(p.is_text ? txt : img, 1, p.first, p.rows));
  return concat(parts, 1);
}

std::vector<NormedPair> TokenGroups::joined(const NormedPair& txt, const NormedPair& img) const {
  std::vector<NormedPair> parts;
  for (const Piece& p : pieces) {
    const NormedPair& from = p.is_text ? txt : img;
    parts.push_back({narrow(from.x, 1, p.first, p.rows), from.q_weight, from.k_weight});
  }
  return parts;
}

std::vector<Tensor*> TokenGroups::tensors() {
  std::vector<Tensor*> every = all.tensors();
  for (Tensor* each : last.tensors()) every.push_back(each);
  every.insert(every.end(),
               {&order, &back, &text, &image, &target, &rope.cosine, &rope.sine, &target_rope.cosine, &target_rope.sine});
  return every;
}

std::string TokenGroups::layout() const {
  std::string said = all.layout() + "; " + last.layout() + ";";
  for (const Piece& p : pieces) said += fmt::format(" {}{}+{}", p.is_text ? "text " : "", p.first, p.rows);
  return said;
}

}  // namespace flux2
