#include "model/token_sampler.h"

#include <algorithm>
#include <cmath>
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

std::vector<Candidate> candidates(std::span<const float> scores, std::span<const int32_t> before, double penalty) {
  std::vector<Candidate> all(scores.size());
  for (size_t i = 0; i < scores.size(); ++i) all[i] = {static_cast<int32_t>(i), scores[i]};
  if (penalty == 1) return all;
  for (const int32_t id : std::set<int32_t>(before.begin(), before.end()))
    if (id >= 0 && static_cast<size_t>(id) < all.size()) {
      float& score = all[static_cast<size_t>(id)].score;
      score = static_cast<float>(score < 0 ? score * penalty : score / penalty);
    }
  return all;
}

void keep_top_k(std::vector<Candidate>& all, int64_t k) {
  if (k <= 0 || static_cast<size_t>(k) >= all.size()) return;
  std::vector<float> scores(all.size());
  std::transform(all.begin(), all.end(), scores.begin(), [](const Candidate& c) { return c.score; });
  std::nth_element(scores.begin(), scores.begin() + (k - 1), scores.end(), std::greater<>());
  const float least = scores[static_cast<size_t>(k - 1)];
  std::erase_if(all, [&](const Candidate& c) { return c.score < least; });
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
  std::vector<Candidate> all = candidates(scores, before, how.repetition_penalty);
  if (how.temperature <= 0) {
    const Candidate* best = nullptr;
    for (const Candidate& c : all)
      if (std::isfinite(c.score) && (!best || c.score > best->score)) best = &c;
    require(best != nullptr, "the language model computed no valid scores");
    return {{best->id, 1}};
  }
  keep_top_k(all, how.top_k);
  std::vector<TokenChance> chances = softmax(all, how.temperature);
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
