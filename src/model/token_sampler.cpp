#include "model/token_sampler.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "base/counted_random.h"
#include "base/error.h"

namespace flux2 {

namespace {

constexpr uint32_t kTokenPurpose = 32;

struct Candidate {
  int32_t id;
  float score;
};

std::vector<float> penalised(std::span<const float> scores, std::span<const int32_t> before, double penalty) {
  std::vector<float> all(scores.begin(), scores.end());
  for (const int32_t id : std::set<int32_t>(before.begin(), before.end()))
    if (id >= 0 && static_cast<size_t>(id) < all.size()) {
      float& score = all[static_cast<size_t>(id)];
      score = static_cast<float>(score < 0 ? score * penalty : score / penalty);
    }
  return all;
}

// The k-th highest score. One pass with the k highest so far: sorting a whole vocabulary takes as long as the GPU takes for
// several layers.
float kth_highest(std::span<const float> scores, size_t k) {
  std::vector<float> highest(k, -INFINITY);  // a heap; the lowest of them stands first
  for (const float score : scores) {
    if (!(score > highest.front())) continue;
    std::pop_heap(highest.begin(), highest.end(), std::greater<>());
    highest.back() = score;
    std::push_heap(highest.begin(), highest.end(), std::greater<>());
  }
  return highest.front();
}

std::vector<Candidate> candidates(std::span<const float> scores, int64_t top_k) {
  const bool all = top_k <= 0 || static_cast<size_t>(top_k) >= scores.size();
  const float least = all ? -INFINITY : kth_highest(scores, static_cast<size_t>(top_k));
  std::vector<Candidate> kept;
  if (all) kept.reserve(scores.size());
  for (size_t i = 0; i < scores.size(); ++i)
    if (!(scores[i] < least)) kept.push_back({static_cast<int32_t>(i), scores[i]});
  return kept;
}

// By id; sums to 1.
std::vector<TokenChance> softmax(const std::vector<Candidate>& all, double temperature) {
  float highest = -INFINITY;
  for (const Candidate& c : all) highest = std::max(highest, c.score);
  require(std::isfinite(highest), "the language model computed no valid scores");
  std::vector<TokenChance> chances;
  chances.reserve(all.size());
  double sum = 0;
  for (const Candidate& c : all) {
    const double p = std::exp((static_cast<double>(c.score) - static_cast<double>(highest)) / temperature);
    if (!(p > 0)) continue;  // a score of −∞
    chances.push_back({c.id, p});
    sum += p;
  }
  for (TokenChance& c : chances) c.probability /= sum;
  return chances;
}

void keep_top_p(std::vector<TokenChance>& chances, double p) {
  if (p >= 1) return;
  std::vector<TokenChance> sorted = chances;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const TokenChance& a, const TokenChance& b) { return a.probability < b.probability; });
  std::set<int32_t> dropped;
  double sum = 0;
  for (size_t i = 0; i + 1 < sorted.size(); ++i) {
    sum += sorted[i].probability;
    if (sum > 1 - p) break;
    dropped.insert(sorted[i].id);
  }
  std::erase_if(chances, [&](const TokenChance& c) { return dropped.contains(c.id); });
}

void keep_min_p(std::vector<TokenChance>& chances, double min_p) {
  if (min_p <= 0) return;
  double highest = 0;
  for (const TokenChance& c : chances) highest = std::max(highest, c.probability);
  std::erase_if(chances, [&](const TokenChance& c) { return c.probability < min_p * highest && c.probability < highest; });
}

}  // namespace

std::vector<TokenChance> token_chances(std::span<const float> scores, std::span<const int32_t> before, const TokenSampling& how) {
  require(!scores.empty(), "there is no token to choose from");
  std::vector<float> changed;
  if (how.repetition_penalty != 1) scores = changed = penalised(scores, before, how.repetition_penalty);
  if (how.temperature <= 0) {
    size_t best = scores.size();
    for (size_t i = 0; i < scores.size(); ++i)
      if (std::isfinite(scores[i]) && (best == scores.size() || scores[i] > scores[best])) best = i;
    require(best < scores.size(), "the language model computed no valid scores");
    return {{static_cast<int32_t>(best), 1}};
  }
  std::vector<TokenChance> chances = softmax(candidates(scores, how.top_k), how.temperature);
  keep_top_p(chances, how.top_p);
  keep_min_p(chances, how.min_p);
  double sum = 0;
  for (const TokenChance& c : chances) sum += c.probability;
  for (TokenChance& c : chances) c.probability /= sum;
  return chances;
}

int32_t sample_token(std::span<const float> scores, std::span<const int32_t> before, const TokenSampling& how,
                     uint64_t position) {
  const std::vector<TokenChance> chances = token_chances(scores, before, how);
  const double u = CountedRandom(how.seed, kTokenPurpose, position).uniform(0);
  double sum = 0;
  for (const TokenChance& c : chances)
    if ((sum += c.probability) > u) return c.id;
  return chances.back().id;  // rounding
}

}  // namespace flux2
