#include "text/bpe_merge.h"

#include <algorithm>
#include <array>
#include <functional>
#include <queue>

namespace flux2 {

namespace {

// Up to this length looking at every pair each time beats keeping a heap; nearly all words of real text are shorter.
constexpr size_t kShortWord = 32;

void merge_short(const MergeTable& merges, std::span<const int32_t> word, std::vector<int32_t>& out) {
  std::array<int32_t, kShortWord> ids;
  std::array<const Merge*, kShortWord> pairs;  // pairs[i] joins ids[i] and ids[i + 1]
  size_t n = word.size();
  std::copy(word.begin(), word.end(), ids.begin());
  const auto pair_at = [&](size_t i) { return i + 1 < n ? merges.find(ids[i], ids[i + 1]) : nullptr; };
  for (size_t i = 0; i < n; ++i) pairs[i] = pair_at(i);
  while (true) {
    size_t best = n;
    for (size_t i = 0; i + 1 < n; ++i) {
      if (pairs[i] && (best == n || pairs[i]->rank < pairs[best]->rank)) best = i;
    }
    if (best == n) break;
    ids[best] = pairs[best]->merged;
    std::copy(ids.begin() + best + 2, ids.begin() + n, ids.begin() + best + 1);
    std::copy(pairs.begin() + best + 2, pairs.begin() + n, pairs.begin() + best + 1);
    --n;
    pairs[best] = pair_at(best);
    if (best > 0) pairs[best - 1] = pair_at(best - 1);
  }
  out.insert(out.end(), ids.begin(), ids.begin() + n);
}

struct Symbol {
  int32_t id;               // -1 once swallowed by its left neighbour
  uint32_t previous, next;  // positions of the neighbours; kNone at the ends
};

struct Candidate {
  uint64_t order;  // rank, then position of the left symbol
  const Merge* merge;
  bool operator>(const Candidate& other) const { return order > other.order; }
};

void merge_long(const MergeTable& merges, std::span<const int32_t> word, std::vector<int32_t>& out) {
  constexpr uint32_t kNone = UINT32_MAX;
  std::vector<Symbol> symbols(word.size());
  for (uint32_t i = 0; i < symbols.size(); ++i) symbols[i] = {word[i], i - 1, i + 1};  // 0 - 1 is kNone
  symbols.back().next = kNone;

  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto consider = [&](uint32_t left) {
    if (left == kNone || symbols[left].next == kNone) return;
    const Merge* merge = merges.find(symbols[left].id, symbols[symbols[left].next].id);
    if (merge) queue.push({static_cast<uint64_t>(merge->rank) << 32 | left, merge});
  };
  for (uint32_t i = 0; i < symbols.size(); ++i) consider(i);

  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    const auto position = static_cast<uint32_t>(best.order);
    Symbol& left = symbols[position];
    // Either side may have merged with another neighbour since this candidate was queued.
    if (left.id != best.merge->left || left.next == kNone || symbols[left.next].id != best.merge->right) continue;
    Symbol& right = symbols[left.next];
    left.id = best.merge->merged;
    left.next = right.next;
    right.id = -1;
    if (left.next != kNone) symbols[left.next].previous = position;
    consider(left.previous);
    consider(position);
  }
  for (const Symbol& symbol : symbols) {
    if (symbol.id >= 0) out.push_back(symbol.id);
  }
}

}  // namespace

void merge_symbols(const MergeTable& merges, std::span<const int32_t> word, std::vector<int32_t>& out) {
  if (word.size() <= kShortWord) {
    merge_short(merges, word, out);
  } else {
    merge_long(merges, word, out);
  }
}

}  // namespace flux2
