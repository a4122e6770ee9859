#include "text/bpe_trainer.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <queue>
#include <set>
#include <unordered_map>

#include "base/error.h"
#include "text/byte_symbols.h"
#include "text/pretokenize.h"
#include "text/unicode.h"

namespace flux2 {

namespace {

using Pair = std::pair<int32_t, int32_t>;

struct PairHash {
  size_t operator()(const Pair& p) const {
    return std::hash<uint64_t>()(static_cast<uint64_t>(static_cast<uint32_t>(p.first)) << 32 | static_cast<uint32_t>(p.second));
  }
};

struct Word {
  std::vector<int32_t> ids;
  int64_t count = 0;
};

// A pair that may be merged next, with the words that had it when it was entered.
struct Candidate {
  Pair pair;
  int64_t count;
  std::set<size_t> words;

  // The most frequent is the largest; of equal ones that with the lower ids.
  bool operator<(const Candidate& other) const { return count != other.count ? count < other.count : pair > other.pair; }
};

// The symbols of all bytes in the order of their code points, and the place of each byte among them.
struct ByteAlphabet {
  std::vector<std::string> symbols;
  int32_t id[256];
};
ByteAlphabet byte_alphabet() {
  std::vector<std::pair<std::string, int>> order;  // UTF-8 sorts as code points do
  for (int byte = 0; byte < 256; ++byte) {
    std::string symbol;
    append_byte_symbol(symbol, static_cast<unsigned char>(byte));
    order.emplace_back(symbol, byte);
  }
  std::sort(order.begin(), order.end());
  ByteAlphabet alphabet;
  for (size_t i = 0; i < order.size(); ++i) {
    alphabet.symbols.push_back(order[i].first);
    alphabet.id[order[i].second] = static_cast<int32_t>(i);
  }
  return alphabet;
}

std::vector<Word> count_words(const std::vector<std::string>& texts, const ByteAlphabet& alphabet) {
  std::map<std::string, int64_t> counts;
  for (const std::string& text : texts) {
    const std::string normal = normalize_nfc(text);
    for (const std::string_view piece : pretokenize(normal)) ++counts[std::string(piece)];
  }
  std::vector<Word> words;
  for (const auto& [piece, count] : counts) {
    Word word;
    for (const char c : piece) word.ids.push_back(alphabet.id[static_cast<unsigned char>(c)]);
    word.count = count;
    words.push_back(std::move(word));
  }
  return words;
}

// Replaces each occurrence of the pair, from the left, and reports the neighbouring pairs that came and went.
template <class Changed>
void merge_in(std::vector<int32_t>& ids, const Pair& pair, int32_t merged, const Changed& changed) {
  for (size_t i = 0; i + 1 < ids.size(); ++i) {
    if (ids[i] != pair.first || ids[i + 1] != pair.second) continue;
    if (i > 0) {
      changed(Pair(ids[i - 1], pair.first), -1);
      changed(Pair(ids[i - 1], merged), 1);
    }
    ids[i] = merged;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(i) + 1);
    if (i + 1 < ids.size()) {
      changed(Pair(pair.second, ids[i + 1]), -1);
      changed(Pair(merged, ids[i + 1]), 1);
    }
  }
}

}  // namespace

LearntBpe learn_bpe(const std::vector<std::string>& texts, int64_t entries) {
  check(entries >= 257, "a byte-level vocabulary needs more than 256 entries, not {}", entries);
  const ByteAlphabet alphabet = byte_alphabet();
  std::vector<Word> words = count_words(texts, alphabet);
  LearntBpe learnt{alphabet.symbols, {}};
  std::unordered_map<std::string, int32_t> ids;
  for (size_t i = 0; i < learnt.vocabulary.size(); ++i) ids.emplace(learnt.vocabulary[i], static_cast<int32_t>(i));

  std::unordered_map<Pair, int64_t, PairHash> counts;
  std::map<Pair, std::set<size_t>> where;
  for (size_t w = 0; w < words.size(); ++w)
    for (size_t i = 0; i + 1 < words[w].ids.size(); ++i) {
      const Pair pair(words[w].ids[i], words[w].ids[i + 1]);
      counts[pair] += words[w].count;
      where[pair].insert(w);
    }
  std::priority_queue<Candidate> queue;
  const auto enter = [&] {
    for (auto& [pair, places] : where)
      if (counts[pair] > 0) queue.push({pair, counts[pair], std::move(places)});
    where.clear();
  };
  enter();

  while (static_cast<int64_t>(learnt.vocabulary.size()) < entries && !queue.empty()) {
    Candidate best = queue.top();
    queue.pop();
    if (best.count != counts[best.pair]) {  // other merges have taken some of its occurrences
      best.count = counts[best.pair];
      queue.push(std::move(best));
      continue;
    }
    if (best.count < 1) break;
    const std::string& left = learnt.vocabulary[static_cast<size_t>(best.pair.first)];
    const std::string& right = learnt.vocabulary[static_cast<size_t>(best.pair.second)];
    learnt.merges.emplace_back(left, right);
    const std::string token = left + right;
    const auto [entry, is_new] = ids.emplace(token, static_cast<int32_t>(learnt.vocabulary.size()));
    if (is_new) learnt.vocabulary.push_back(token);
    for (const size_t w : best.words)
      merge_in(words[w].ids, best.pair, entry->second, [&](const Pair& pair, int64_t change) {
        counts[pair] += change * words[w].count;
        if (change > 0) where[pair].insert(w);
      });
    enter();
  }
  return learnt;
}

std::vector<std::string> words_of_text(const std::string& text) {
  // Letters outside of ASCII belong to words.
  const auto in_word = [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '\'' || c >= 0x80; };
  std::vector<std::string> words;
  std::string word;
  for (const char c : text + " ") {
    if (in_word(static_cast<unsigned char>(c))) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (!word.empty()) {
      words.push_back(std::move(word));
      word.clear();
    }
  }
  return words;
}

std::vector<std::string> words_in(const std::vector<std::string>& texts) {
  std::set<std::string> all;
  for (const std::string& text : texts)
    for (std::string& word : words_of_text(text)) all.insert(std::move(word));
  return {all.begin(), all.end()};
}

}  // namespace flux2
