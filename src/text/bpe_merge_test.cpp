#include "text/bpe_merge.h"

#include <gtest/gtest.h>

#include <ctime>
#include <random>

namespace flux2 {
namespace {

// The definition, word for word.
std::vector<int32_t> merged_by_definition(const MergeTable& merges, std::vector<int32_t> word) {
  while (true) {
    const Merge* best = nullptr;
    size_t at = 0;
    for (size_t i = 0; i + 1 < word.size(); ++i) {
      const Merge* merge = merges.find(word[i], word[i + 1]);
      if (merge && (!best || merge->rank < best->rank)) {
        best = merge;
        at = i;
      }
    }
    if (!best) return word;
    word[at] = best->merged;
    word.erase(word.begin() + at + 1);
  }
}

// Random merges over symbols 0…7, each making a new symbol from two earlier ones.
MergeTable random_merges(std::mt19937& random, int count) {
  MergeTable merges(count);
  for (int i = 0; i < count; ++i) {
    const int symbols = 8 + i;
    merges.put({static_cast<int32_t>(random() % symbols), static_cast<int32_t>(random() % symbols),
                static_cast<uint32_t>(random() % 50), symbols});
  }
  return merges;
}

TEST(BpeMerge, AgreesWithItsDefinition) {
  std::mt19937 random(3);
  for (int round = 0; round < 3000; ++round) {
    const MergeTable merges = random_merges(random, 60);
    std::vector<int32_t> word(random() % 80);  // both sides of the length where the method changes
    for (int32_t& symbol : word) symbol = random() % 8;
    std::vector<int32_t> out = {-7};
    merge_symbols(merges, word, out);
    ASSERT_EQ(out.front(), -7);
    out.erase(out.begin());
    ASSERT_EQ(out, merged_by_definition(merges, word)) << "round " << round << ", length " << word.size();
  }
}

TEST(BpeMerge, LongWordsAreNotQuadratic) {
  MergeTable merges(3);
  merges.put({0, 0, 0, 1});
  merges.put({1, 1, 1, 2});
  merges.put({2, 2, 2, 3});
  const std::vector<int32_t> word(1 << 20, 0);
  std::vector<int32_t> out;
  const std::clock_t start = std::clock();  // of the processor: other programs do not count
  merge_symbols(merges, word, out);
  EXPECT_LT((std::clock() - start) / CLOCKS_PER_SEC, 20);  // quadratic: hours
  EXPECT_EQ(out, std::vector<int32_t>((1 << 20) / 8, 3));
}

}  // namespace
}  // namespace flux2
