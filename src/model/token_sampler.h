#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace flux2 {

// How the next token is chosen. The steps happen in the order of the members.
struct TokenSampling {
  double repetition_penalty = 1;  // scores of tokens that are there already: divided by it if positive, else multiplied
  double temperature = 1;         // 0: the token with the highest score, of equal ones the first
  int64_t top_k = 0;              // drops what scores less than the k-th highest; ties with it stay. 0: keeps all
  double top_p = 1;               // drops the least likely tokens whose probabilities together are at most 1 − p
  double min_p = 0;               // drops what is less likely than min_p times the most likely
  uint64_t seed = 0;
};

struct TokenChance {
  int32_t id = 0;
  double probability = 0;
};

// The tokens that may be drawn, by id, with probabilities that sum to 1. With temperature 0 that is one token. `before` are the
// tokens so far, for the repetition penalty. Throws Internal if no score is finite.
std::vector<TokenChance> token_chances(std::span<const float> scores, std::span<const int32_t> before, const TokenSampling& how);

// Draws one of them. The same seed and position give the same token: the number is Philox' (seed, purpose 32, position), and the
// first id whose running sum exceeds it is taken.
int32_t sample_token(std::span<const float> scores, std::span<const int32_t> before, const TokenSampling& how, uint64_t position);

}  // namespace flux2
