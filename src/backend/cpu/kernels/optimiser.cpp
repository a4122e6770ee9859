#include "backend/cpu/kernels/optimiser.h"

#include "backend/cpu/kernels/scalar_table.h"

namespace flux2::cpu {

void store_parameters(const OptimiseArgs& a, const OptimiserTensor& t, int64_t first, int64_t n, const float* values) {
  if (!t.p_is_bf16) {
    std::copy_n(values, n, static_cast<float*>(t.p) + first);
    return;
  }
  bf16* p = static_cast<bf16*>(t.p) + first;
  for (int64_t i = 0; i < n;) {
    const RandomWords words = rounding_words(a.seed, t.index, a.step, static_cast<uint32_t>((first + i) / 4));
    for (int64_t at = (first + i) % 4; at < 4 && i < n; ++at, ++i) p[i].bits = stochastic_bf16(values[i], words.word[at]);
  }
}

namespace {

int64_t chunks_of(const OptimiserTensor& t) { return (t.count + kOptimiserChunk - 1) / kOptimiserChunk; }

// Calls body(first, n) for the pieces of a chunk.
template <class Body>
void for_optimiser_pieces(const OptimiserTensor& t, int64_t chunk, Body&& body) {
  const int64_t end = std::min(t.count, (chunk + 1) * kOptimiserChunk);
  for (int64_t first = chunk * kOptimiserChunk; first < end; first += kOptimiserPiece)
    body(first, std::min(kOptimiserPiece, end - first));
}

template <OptimiserRule kRule>
void update_plain(const OptimiseArgs& a) {
  constexpr int kStates = state_count(kRule);
  for_parts(
      a, [&](size_t i) { return chunks_of(a.tensors[i]); },
      [&](size_t i, int64_t chunk) {
        const OptimiserTensor& t = a.tensors[i];
        for_optimiser_pieces(t, chunk, [&](int64_t first, int64_t n) {
          float p[kOptimiserPiece], g[kOptimiserPiece] = {}, none[kOptimiserPiece] = {};
          load_parameters(t, first, n, p);
          if (kRule != OptimiserRule::Interpolate) load_gradients(t, a.numbers.gradient_scale, first, n, g);
          float* __restrict x = kStates > 0 ? static_cast<float*>(t.state[0]) + first : none;
          float* __restrict y = kStates > 1 ? static_cast<float*>(t.state[1]) + first : none;
          float* __restrict z = kStates > 2 ? static_cast<float*>(t.state[2]) + first : none;
          for (int64_t e = 0; e < n; ++e) {
            OptimiserElement element{p[e], g[e]};
            if constexpr (kStates > 0) element.a = x[e];
            if constexpr (kStates > 1) element.b = y[e];
            if constexpr (kStates > 2) element.c = z[e];
            update_element<kRule>(a.numbers, t, element);
            p[e] = element.p;
            if constexpr (kStates > 0) x[e] = element.a;
            if constexpr (kStates > 1) y[e] = element.b;
            if constexpr (kStates > 2) z[e] = element.c;
          }
          if (kRule == OptimiserRule::Interpolate && t.p_is_bf16) {
            bf16* to = static_cast<bf16*>(t.p) + first;
            for (int64_t e = 0; e < n; ++e) to[e] = to_bf16(p[e]);
          } else {
            store_parameters(a, t, first, n, p);
          }
        });
      });
}

// code_of() for a block of values. The searches go on side by side, since each step of a search waits for the one before.
void store_codes(const float* book, bool is_signed, const float* s, float largest, int64_t n, uint8_t* codes) {
  if (largest == 0.0f) {
    std::fill_n(codes, n, code_of(book, is_signed, 0.0f, 0.0f));
    return;
  }
  float v[kCodeBlock];
  int32_t low[kCodeBlock] = {};
  for (int64_t e = 0; e < n; ++e) v[e] = s[e] / largest;
  for (int half = 128; half > 0; half /= 2)
    for (int64_t e = 0; e < n; ++e) low[e] = search_step(book, v[e], low[e], half);
  for (int64_t e = 0; e < n; ++e) {
    const int code = nearest_of_two(book, v[e], low[e]);
    codes[e] = is_signed ? code_with_sign(book, s[e], code) : static_cast<uint8_t>(code);
  }
}

template <OptimiserRule kRule>
void update_8bit(const OptimiseArgs& a) {
  constexpr int kStates = state_count(kRule);
  for_parts(
      a, [&](size_t i) { return chunks_of(a.tensors[i]); },
      [&](size_t i, int64_t chunk) {
        const OptimiserTensor& t = a.tensors[i];
        for_optimiser_pieces(t, chunk, [&](int64_t first, int64_t n) {
          float p[kCodeBlock], g[kCodeBlock], s[3][kCodeBlock] = {}, largest[3] = {};
          load_parameters(t, first, n, p);
          load_gradients(t, a.numbers.gradient_scale, first, n, g);
          for (int k = 0; k < kStates; ++k) {
            const uint8_t* codes = static_cast<const uint8_t*>(t.state[k]) + first;
            const float* book = has_signed_codes(k) ? a.signed_codes : a.unsigned_codes;
            const float maximum = static_cast<const float*>(t.state[kStates + k])[first / kCodeBlock];
            for (int64_t e = 0; e < n; ++e) s[k][e] = book[codes[e]] * maximum;
          }
          for (int64_t e = 0; e < n; ++e) {
            OptimiserElement element{p[e], g[e], s[0][e], s[1][e], s[2][e]};
            if (std::isfinite(g[e])) update_element<kRule>(a.numbers, t, element);
            else element.a = element.b = element.c = 0;
            p[e] = element.p;
            s[0][e] = element.a, s[1][e] = element.b, s[2][e] = element.c;
          }
          for (int k = 0; k < kStates; ++k) {
            uint8_t* codes = static_cast<uint8_t*>(t.state[k]) + first;
            const bool is_signed = has_signed_codes(k);
            const float* book = is_signed ? a.signed_codes : a.unsigned_codes;
            for (int64_t e = 0; e < n; ++e) largest[k] = std::max(largest[k], std::abs(s[k][e]));
            store_codes(book, is_signed, s[k], largest[k], n, codes);
            static_cast<float*>(t.state[kStates + k])[first / kCodeBlock] = largest[k];
          }
          store_parameters(a, t, first, n, p);
        });
      });
}

struct PairOfSums {
  double first = 0, second = 0;
};

// Adds what body(tensor, chunk) returns for every chunk, in the order of the chunks.
template <class Body>
void sum_chunks(const OptimiseArgs& a, Body&& body) {
  std::vector<std::vector<PairOfSums>> parts(a.tensors.size());
  for (size_t i = 0; i < parts.size(); ++i) parts[i].resize(static_cast<size_t>(chunks_of(a.tensors[i])));
  for_parts(
      a, [&](size_t i) { return chunks_of(a.tensors[i]); },
      [&](size_t i, int64_t chunk) { parts[i][static_cast<size_t>(chunk)] = body(a.tensors[i], chunk); });
  PairOfSums total;
  for (const auto& tensor : parts)
    for (const PairOfSums& part : tensor) total.first += part.first, total.second += part.second;
  a.sums[0] = total.first;
  a.sums[1] = total.second;
}

PairOfSums prodigy_chunk(const OptimiseArgs& a, const OptimiserTensor& t, int64_t chunk) {
  PairOfSums sums;
  for_optimiser_pieces(t, chunk, [&](int64_t first, int64_t n) {
    float p[kOptimiserPiece], g[kOptimiserPiece];
    load_parameters(t, first, n, p);
    load_gradients(t, a.numbers.gradient_scale, first, n, g);
    float* m = static_cast<float*>(t.state[0]) + first;
    float* v = static_cast<float*>(t.state[1]) + first;
    for (int64_t e = 0; e < n; ++e) {
      OptimiserElement element{p[e], g[e], m[e], v[e]};
      prodigy_moments(a.numbers, t, element);
      g[e] = element.g;
      m[e] = element.a;
      v[e] = element.b;
    }
    float* s = static_cast<float*>(t.state[2]);
    const float* start = static_cast<const float*>(t.state[3]);
    const int64_t slice = a.numbers.slice;
    for (int64_t at = (first + slice - 1) / slice; at * slice < first + n; ++at) {
      const int64_t e = at * slice - first;
      s[at] = prodigy_s(a.numbers, s[at], g[e]);
      sums.first += static_cast<double>(g[e]) * static_cast<double>(start[at] - p[e]);
      sums.second += static_cast<double>(std::abs(s[at]));
    }
  });
  return sums;
}

PairOfSums square_chunk(const OptimiseArgs& a, const OptimiserTensor& t, int64_t chunk) {
  PairOfSums sums;
  for_optimiser_pieces(t, chunk, [&](int64_t first, int64_t n) {
    float g[kOptimiserPiece];
    load_gradients(t, a.numbers.gradient_scale, first, n, g);
    double lanes[4] = {};
    int64_t e = 0;
    for (; e + 4 <= n; e += 4)
      for (int64_t k = 0; k < 4; ++k) lanes[k] += static_cast<double>(g[e + k]) * static_cast<double>(g[e + k]);
    for (; e < n; ++e) lanes[0] += static_cast<double>(g[e]) * static_cast<double>(g[e]);
    sums.first += (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
  });
  return sums;
}

}  // namespace

void optimise(const OptimiseArgs& a) {
  using R = OptimiserRule;
  switch (a.rule) {
    case R::AdamW: return update_plain<R::AdamW>(a);
    case R::Lion: return update_plain<R::Lion>(a);
    case R::Sgd: return update_plain<R::Sgd>(a);
    case R::SgdMomentum: return update_plain<R::SgdMomentum>(a);
    case R::AdEmaMix: return update_plain<R::AdEmaMix>(a);
    case R::ScheduleFree: return update_plain<R::ScheduleFree>(a);
    case R::Interpolate: return update_plain<R::Interpolate>(a);
    case R::ProdigyUpdate: return update_plain<R::ProdigyUpdate>(a);
    case R::AdamWDecayLast: return update_plain<R::AdamWDecayLast>(a);
    case R::AdamW8bit: return update_8bit<R::AdamW8bit>(a);
    case R::Lion8bit: return update_8bit<R::Lion8bit>(a);
    case R::AdEmaMix8bit: return update_8bit<R::AdEmaMix8bit>(a);
    case R::Adafactor:
    case R::Came: return optimise_factored(a);
    case R::ProdigySums:
      return sum_chunks(a, [&](const OptimiserTensor& t, int64_t chunk) { return prodigy_chunk(a, t, chunk); });
    case R::SquaredGradients:
      return sum_chunks(a, [&](const OptimiserTensor& t, int64_t chunk) { return square_chunk(a, t, chunk); });
  }
}

}  // namespace flux2::cpu
