#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "backend/cpu/gemm/compiler.h"
#include "backend/cpu/gemm/convert.h"
#include "backend/cpu/gemm/one_query.h"
#include "backend/cpu/gemm/operands.h"
#include "backend/cpu/gemm/softmax.h"
#include "backend/cpu/kernels/scalar_table.h"

namespace flux2::gemm {

namespace {

constexpr int64_t kQueryRows = 64;  // of a task: a block of keys serves this many rows once it is in the cache
constexpr int64_t kKeyBlock = 768;
constexpr int64_t kAhead = 4;  // rows of a head lie far apart: each is asked for this many rows before its turn

// Row s of one head of a tensor [B, S, H, D].
const std::byte* head_row(const Tensor& x, int64_t batch, int64_t s, int64_t head) {
  return x.data<std::byte>() + bytes_for(x.dtype(), batch * x.stride(0) + s * x.stride(1) + head * x.stride(2));
}

// The matrix [S, D] of one head.
template <class T>
MatrixRows<T> head_rows(const Tensor& x, int64_t batch, int64_t head) {
  return {head_row(x, batch, 0, head), x.dtype(), x.stride(1)};
}

// Of a panel of `width` rows, those before the end.
int tile_part(int width, int64_t left) { return static_cast<int>(std::min<int64_t>(width, left)); }

// Attention in one pass over the keys: a block of queries keeps its running maximum, sum and weighted values while
// blocks of keys go by, so no row of scores is ever whole. Keys and values are packed once for all queries. Queries are
// multiplied by scale · log2 e before they are packed: scores come out as the powers of two the softmax takes.
template <class T>
class Attention {
 public:
  Attention(const AttentionArgs& args, const MicroKernel<T>& kernel)
      : args_(args),
        kernel_(kernel),
        workers_(workers_of(args.y)),
        queries_(args.q.dim(1)),
        heads_(args.q.dim(2)),
        width_(args.q.dim(3)),
        keys_(args.k.dim(1)),
        groups_(args.k.dim(2)),
        packed_width_(round_up(width_, kernel.kr)),
        value_rows_(round_up(width_, kernel.nr)),
        task_rows_(round_up(std::min(kQueryRows, queries_), kernel.mr)),
        key_blocks_(std::max<int64_t>(1, divide_up(keys_, kKeyBlock))),
        block_keys_(round_up(divide_up(keys_, key_blocks_), kernel.nr)),
        key_elements_(round_up(block_keys_ * packed_width_, 32)),
        value_elements_(round_up(value_rows_ * round_up(block_keys_, kernel.kr), 32)) {
    const int64_t blocks = args.k.dim(0) * groups_ * key_blocks_;
    packed_ = allocate<T>(blocks * (key_elements_ + value_elements_));
  }

  void run() {
    const int64_t batch = args_.q.dim(0), query_blocks = divide_up(queries_, task_rows_);
    workers_.threads.parallel_for(args_.k.dim(0) * groups_ * key_blocks_, [&](int64_t i) { pack_block(i); });
    const int slots = workers_.threads.size();
    std::vector<Slot> scratch;
    for (int i = 0; i < slots; ++i) scratch.push_back(make_slot());
    std::atomic<int64_t> next{0};
    const int64_t tasks = batch * heads_ * query_blocks;
    workers_.threads.parallel_for(std::min<int64_t>(slots, tasks), [&](int64_t slot) {
      // The last blocks of queries first: under a causal mask they see the most keys.
      for (int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < tasks;)
        run_task(scratch[static_cast<size_t>(slot)], i / query_blocks / heads_, i / query_blocks % heads_,
                 (query_blocks - 1 - i % query_blocks) * task_rows_);
    });
  }

 private:
  template <class U>
  std::shared_ptr<U> allocate(int64_t count) const {
    return std::static_pointer_cast<U>(workers_.stream.allocate(static_cast<size_t>(std::max<int64_t>(count, 1)) * sizeof(U)));
  }

  struct Slot {
    std::shared_ptr<T> memory;
    std::shared_ptr<float> floats;
    T* scratch;
    T* queries;     // packed, task_rows × packed_width
    T* weights;     // packed, mr × block_keys
    float* query;   // one, width
    float* tile;    // mr × nr
    float* scores;  // of mr queries against a block of keys, in tiles
    float* sums;    // Σ weight · value, task_rows × value_rows
    std::vector<SoftmaxState> states;
  };

  Slot make_slot() const {
    const int64_t mr = kernel_.mr, wide = std::max(packed_width_, block_keys_);
    const int64_t rows = std::max<int64_t>(mr, kernel_.nr) * wide, weights = mr * round_up(block_keys_, kernel_.kr);
    Slot s;
    s.memory = allocate<T>(rows + task_rows_ * packed_width_ + weights);
    s.scratch = s.memory.get();
    s.queries = s.scratch + rows;
    s.weights = s.queries + task_rows_ * packed_width_;
    s.floats = allocate<float>(mr * kernel_.nr + mr * block_keys_ + task_rows_ * value_rows_ + width_);
    s.tile = s.floats.get();
    s.scores = s.tile + mr * kernel_.nr;
    s.sums = s.scores + mr * block_keys_;
    s.query = s.sums + task_rows_ * value_rows_;
    s.states.resize(static_cast<size_t>(task_rows_));
    return s;
  }

  int64_t earlier() const { return keys_ - queries_; }  // keys of tokens before the first query
  int64_t first_key(int64_t block) const { return block * block_keys_; }
  int64_t keys_of(int64_t block) const { return std::min(block_keys_, keys_ - first_key(block)); }
  T* key_panels(int64_t block) const { return packed_.get() + block * (key_elements_ + value_elements_); }
  T* value_panels(int64_t block) const { return key_panels(block) + key_elements_; }

  // Keys as rows of D for the scores, values as columns of keys for the weighted sum.
  void pack_block(int64_t block) const {
    const int64_t batch = block / key_blocks_ / groups_, group = block / key_blocks_ % groups_;
    const int64_t k0 = first_key(block % key_blocks_), n = keys_of(block % key_blocks_);
    const int nr = kernel_.nr;
    std::vector<T> scratch(static_cast<size_t>(nr * std::max(width_, n)));

    const auto keys = head_rows<T>(args_.k, batch, group);
    // Values are converted in whole rows first, and not in pieces for each panel of columns.
    std::vector<T> converted(static_cast<size_t>(n * width_));
    for (int64_t j = 0; j < n; ++j) {
      prefetch(head_row(args_.v, batch, k0 + j + kAhead, group), bytes_for(args_.v.dtype(), width_));
      convert(args_.v.dtype(), head_row(args_.v, batch, k0 + j, group), 0, width_, converted.data() + j * width_);
    }
    const MatrixRows<T> by_key(converted.data(), kDTypeOf<T>, width_);
    const Transposed<T> values(by_key);
    const RowPanels<T> pack_keys(keys, kernel_.pack_b, nr), pack_values(values, kernel_.pack_b, nr);
    for (int64_t j = 0; j < n; j += nr)
      pack_keys.pack(k0 + j, tile_part(nr, n - j), 0, width_, scratch.data(), key_panels(block) + j * packed_width_);
    for (int64_t j = 0; j < width_; j += nr)
      pack_values.pack(j, tile_part(nr, width_ - j), 0, n, scratch.data(), value_panels(block) + j * round_up(n, kernel_.kr));
  }

  void run_task(Slot& s, int64_t batch, int64_t head, int64_t q0) const {
    const Running running(kernel_);
    const int64_t rows = std::min(task_rows_, queries_ - q0);
    for (int64_t r = 0; r < rows; r += kernel_.mr) pack_queries(s, batch, head, q0 + r, tile_part(kernel_.mr, rows - r), r);
    std::fill(s.states.begin(), s.states.end(), SoftmaxState{});
    std::fill_n(s.sums, task_rows_ * value_rows_, 0.0f);

    const int64_t first = (batch * groups_ + head / (heads_ / groups_)) * key_blocks_;
    for (int64_t block = 0; block < key_blocks_; ++block) {
      for (int64_t r = 0; r < rows; r += kernel_.mr) {
        // Under a causal mask no query of the tile sees what comes after the last of them.
        const int64_t last_query = q0 + std::min<int64_t>(r + kernel_.mr, rows) - 1;
        const int64_t n = args_.causal ? std::min(keys_of(block), last_query + earlier() + 1 - first_key(block)) : keys_of(block);
        if (n > 0) add_keys(s, batch, q0, r, block, n, first + block);
      }
    }
    for (int64_t r = 0; r < rows; ++r) finish_row(s, batch, head, q0 + r, r);
  }

  void pack_queries(Slot& s, int64_t batch, int64_t head, int64_t query, int count, int64_t r) const {
    const auto factor = static_cast<float>(args_.scale * std::numbers::log2e);
    const T* rows[kMaxTileRows];
    for (int i = 0; i < count; ++i) {
      prefetch(head_row(args_.q, batch, query + i + kAhead, head), bytes_for(args_.q.dtype(), width_));
      T* row = s.scratch + i * width_;
      const float* stored = as_type(args_.q.dtype(), head_row(args_.q, batch, query + i, head), 0, width_, s.query);
      for (int64_t c = 0; c < width_; ++c) s.query[c] = stored[c] * factor;
      convert(DType::F32, s.query, 0, width_, row);
      rows[i] = row;
    }
    std::fill(rows + count, rows + kernel_.mr, rows[count - 1]);
    kernel_.pack_a(width_, rows, s.queries + r * packed_width_);
  }

  // Scores of mr queries from row r on against the first n of a block of keys, their softmax so far, and the values they
  // weigh.
  void add_keys(Slot& s, int64_t batch, int64_t q0, int64_t r, int64_t block, int64_t n, int64_t packed_block) const {
    const int mr = kernel_.mr, nr = kernel_.nr;
    const int64_t pieces = divide_up(n, nr);
    for (int64_t j = 0; j < pieces; ++j)
      kernel_.run(packed_width_, s.queries + r * packed_width_, key_panels(packed_block) + j * nr * packed_width_,
                  s.scores + j * mr * nr, {true, true});

    float factors[kMaxTileRows];
    const T* rows[kMaxTileRows];
    for (int i = 0; i < mr; ++i) {
      const Pieces scores = {s.scores + i * nr, nr, mr * nr};
      hide(s.scores + i * nr, batch, q0 + r + i, first_key(block), n);
      T* weights = s.scratch + i * pieces * nr;
      factors[i] = softmax_step(s.states[static_cast<size_t>(r + i)], scores, pieces, weights);
      rows[i] = weights;
    }
    kernel_.pack_a(n, rows, s.weights);

    // Panels of values hold all keys of the block, the first n in front.
    const int64_t panel_keys = round_up(keys_of(block), kernel_.kr);
    const int64_t packed_n = round_up(n, kernel_.kr);
    for (int64_t j = 0; j < width_; j += nr) {
      kernel_.run(packed_n, s.weights, value_panels(packed_block) + j * panel_keys, s.tile, {true, true});
      for (int i = 0; i < mr; ++i) scale_and_add(nr, factors[i], s.tile + i * nr, s.sums + (r + i) * value_rows_ + j);
    }
  }

  // Scores of keys the query must not see, and of those past the n-th, become −∞.
  void hide(float* scores, int64_t batch, int64_t query, int64_t k0, int64_t n) const {
    const int mr = kernel_.mr, nr = kernel_.nr;
    const auto at = [&](int64_t key) -> float& { return scores[key / nr * mr * nr + key % nr]; };
    constexpr float kHidden = -std::numeric_limits<float>::infinity();
    const int64_t seen = args_.causal ? std::clamp<int64_t>(query + earlier() - k0 + 1, 0, n) : n;
    for (int64_t j = seen; j < round_up(n, nr); ++j) at(j) = kHidden;
    if (!args_.key_mask) return;
    const auto* visible = args_.key_mask->data<int32_t>() + batch * args_.key_mask->stride(0) + k0;
    for (int64_t j = 0; j < seen; ++j)
      if (visible[j] == 0) at(j) = kHidden;
  }

  // A query that sees no key at all gets zeros.
  void finish_row(Slot& s, int64_t batch, int64_t head, int64_t query, int64_t r) const {
    const SoftmaxState& state = s.states[static_cast<size_t>(r)];
    float* sums = s.sums + r * value_rows_;
    const float inverse = state.sum > 0.0f ? 1.0f / state.sum : 0.0f;
    for (int64_t c = 0; c < width_; ++c) sums[c] *= inverse;
    const Tensor& y = args_.y;
    const int64_t offset = batch * y.stride(0) + query * y.stride(1) + head * y.stride(2);
    store(sums, width_, y.dtype(), y.data<std::byte>() + bytes_for(y.dtype(), offset));
    if (const Tensor* log_sum = args_.log_sum)
      log_sum->data<float>()[batch * log_sum->stride(0) + head * log_sum->stride(1) + query * log_sum->stride(2)] =
          (state.max + std::log2(state.sum)) * std::numbers::ln2_v<float>;
  }

  const AttentionArgs& args_;
  const MicroKernel<T>& kernel_;
  const Workers workers_;
  const int64_t queries_, heads_, width_, keys_, groups_;
  const int64_t packed_width_;  // D padded for the micro-kernel
  const int64_t value_rows_;    // D padded to whole tiles
  const int64_t task_rows_, key_blocks_;
  const int64_t block_keys_;  // of every block but perhaps the last
  const int64_t key_elements_, value_elements_;
  std::shared_ptr<T> packed_;  // [block of keys of one head] keys, then values
};

}  // namespace

void attention(const AttentionArgs& args, const KernelSet& set) {
  if (!computes({&args.q, &args.k, &args.v, &args.y})) return cpu::attention(args);
  if (args.y.numel() == 0) return;
  if (set.direct && is_one_query(args)) return attention_of_one_query(args);
  if (set.in_bf16) Attention<bf16>(args, *set.in_bf16).run();
  else Attention<float>(args, *set.in_f32).run();
}

}  // namespace flux2::gemm
