#include "backend/cpu/gemm/driver.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "backend/cpu/gemm/convert.h"

namespace flux2::gemm {

namespace {

// A block of K keeps a panel of a (8 rows: 8 or 12 KB) in the first cache level; a strip of b with its tiles of the
// result stays in the second.
constexpr int64_t kBlockBytes = 1536;       // of one row
constexpr int64_t kStripColumns = 96;
constexpr int64_t kTaskRows = 768;
constexpr int64_t kLeastTaskRows = 64;
constexpr int64_t kChunkBytes = 24 << 20;   // of packed a: stays in the last cache level
constexpr int64_t kLeastChunkRows = 768;    // fewer, and packing b for every chunk would show

// K in equal blocks.
struct Blocks {
  int64_t count, size, k;

  Blocks(int64_t total, int64_t largest, int64_t step)
      : count(std::max<int64_t>(1, divide_up(total, largest))), size(std::max(step, round_up(divide_up(total, count), step))), k(total) {
    count = std::max<int64_t>(1, divide_up(k, size));
  }
  int64_t begin(int64_t i) const { return i * size; }
  int64_t elements(int64_t i) const { return std::min(size, k - begin(i)); }
};

// How one chunk is shared out: rows and columns of a task, both whole tiles.
struct Split {
  int64_t rows, columns, row_tasks, column_tasks;

  Split(int64_t m, int64_t n, int mr, int nr, int threads) {
    columns = round_up(divide_up(n, divide_up(n, kStripColumns)), nr);
    column_tasks = divide_up(n, columns);
    // Four tasks a thread even out cores of unequal speed; fewer when the parts would become too small.
    row_tasks = std::max(divide_up(m, kTaskRows), divide_up(4 * threads, column_tasks));
    row_tasks = std::min(row_tasks, divide_up(m, kLeastTaskRows));
    rows = round_up(divide_up(m, row_tasks), mr);
    row_tasks = divide_up(m, rows);
  }
  int64_t tasks() const { return row_tasks * column_tasks; }
};

// Calls body(slot, task) for every task; a slot is one thread's, so what belongs to it is not shared.
template <class Body>
void for_each_task(ThreadPool& threads, int64_t tasks, const Body& body) {
  std::atomic<int64_t> next{0};
  threads.parallel_for(std::min<int64_t>(threads.size(), tasks), [&](int64_t slot) {
    for (int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < tasks;) body(slot, task);
  });
}

template <class T>
class Product {
 public:
  Product(const MicroKernel<T>& kernel, const RowSource<T>& a, const RowSource<T>& b, Extents extents, const Output& output,
          const Workers& workers)
      : kernel_(kernel), a_(a), b_(b), e_(extents), output_(output), threads_(workers.threads),
        blocks_(e_.k, kBlockBytes / static_cast<int64_t>(sizeof(T)) / kernel.kr * kernel.kr, kernel.kr),
        padded_k_(blocks_.count * blocks_.size) {
    const int64_t most = std::max(kLeastChunkRows, kChunkBytes / (padded_k_ * static_cast<int64_t>(sizeof(T))));
    chunk_rows_ = round_up(divide_up(e_.m, divide_up(e_.m, most)), kernel.mr);

    const Split split(std::min(chunk_rows_, e_.m), e_.n, kernel.mr, kernel.nr, threads_.size());
    const int64_t task_rows = round_up(std::min(kTaskRows, chunk_rows_), kernel.mr);
    zero_elements_ = round_up(blocks_.size, 32);
    scratch_elements_ = round_up(std::max(kernel.mr, kernel.nr) * blocks_.size, 32);
    strip_elements_ = round_up(split.columns * blocks_.size, 32);

    slot_bytes_ = (zero_elements_ + scratch_elements_ + strip_elements_) * static_cast<int64_t>(sizeof(T)) +
                  round_up(task_rows * split.columns, 16) * static_cast<int64_t>(sizeof(float));
    const int64_t packed = round_up(chunk_rows_ * padded_k_, 32) * static_cast<int64_t>(sizeof(T));
    memory_ = workers.stream.allocate(static_cast<size_t>(packed + slot_bytes_ * threads_.size()));
    packed_a_ = static_cast<T*>(memory_.get());
    slots_ = static_cast<std::byte*>(memory_.get()) + packed;
    for (int i = 0; i < threads_.size(); ++i)
      std::memset(slots_ + i * slot_bytes_, 0, static_cast<size_t>(zero_elements_) * sizeof(T));
  }

  void run() {
    for (int64_t m0 = 0; m0 < e_.m; m0 += chunk_rows_) {
      const int64_t rows = std::min(chunk_rows_, e_.m - m0);
      for_each_task(threads_, divide_up(rows, kernel_.mr), [&](int64_t s, int64_t panel) { pack_a(slot(s), m0, rows, panel); });
      const Split split(rows, e_.n, kernel_.mr, kernel_.nr, threads_.size());
      for_each_task(threads_, split.tasks(), [&](int64_t s, int64_t task) { run_task(slot(s), split, m0, rows, task); });
    }
  }

 private:
  struct Slot {
    PackScratch<T> scratch;
    T* strip;      // packed b: columns × one block of K
    float* tiles;  // results of one task
  };

  Slot slot(int64_t i) const {
    T* zeros = reinterpret_cast<T*>(slots_ + i * slot_bytes_);
    T* rows = zeros + zero_elements_;
    T* strip = rows + scratch_elements_;
    return {{rows, zeros}, strip, reinterpret_cast<float*>(strip + strip_elements_)};
  }

  // Packed a is [block][panel], so that a task reads it front to back.
  T* panel_a(int64_t block, int64_t panel) const {
    return packed_a_ + block * chunk_rows_ * blocks_.size + panel * kernel_.mr * blocks_.size;
  }

  void pack_a(const Slot& s, int64_t m0, int64_t rows, int64_t panel) const {
    const int64_t r = panel * kernel_.mr;
    for (int64_t i = 0; i < blocks_.count; ++i)
      pack_panel(a_, kernel_.pack_a, kernel_.mr, m0 + r, std::min<int64_t>(kernel_.mr, rows - r), blocks_.begin(i),
                 blocks_.elements(i), s.scratch, panel_a(i, panel));
  }

  void run_task(const Slot& s, const Split& split, int64_t m0, int64_t chunk_rows, int64_t task) const {
    const int mr = kernel_.mr, nr = kernel_.nr;
    const int64_t r0 = task % split.row_tasks * split.rows, c0 = task / split.row_tasks * split.columns;
    const int64_t rows = std::min(split.rows, chunk_rows - r0), columns = std::min(split.columns, e_.n - c0);
    const int64_t row_tiles = divide_up(rows, mr), column_tiles = divide_up(columns, nr);

    for (int64_t block = 0; block < blocks_.count; ++block) {
      const int64_t k = blocks_.elements(block), packed_k = round_up(k, kernel_.kr);
      for (int64_t j = 0; j < column_tiles; ++j)
        pack_panel(b_, kernel_.pack_b, nr, c0 + j * nr, std::min<int64_t>(nr, columns - j * nr), blocks_.begin(block), k,
                   s.scratch, s.strip + j * nr * packed_k);
      const Pass pass{block == 0, block == blocks_.count - 1};
      float* tile = s.tiles;
      for (int64_t i = 0; i < row_tiles; ++i) {
        const T* a = panel_a(block, r0 / mr + i);
        for (int64_t j = 0; j < column_tiles; ++j, tile += mr * nr)
          kernel_.run(packed_k, a, s.strip + j * nr * packed_k, tile, pass);
      }
    }
    for (int64_t i = 0; i < row_tiles; ++i)
      for (int64_t r = 0; r < std::min<int64_t>(mr, rows - i * mr); ++r)
        store_row(s.tiles + i * column_tiles * mr * nr + r * nr, m0 + r0 + i * mr + r, c0, columns);
  }

  // One row of the result: nr values of each of the tiles side by side.
  void store_row(float* first, int64_t row, int64_t c0, int64_t columns) const {
    const int64_t width = info(output_.dtype).block_bytes;
    auto* out = static_cast<std::byte*>(output_.data) + (row * output_.row_stride + c0) * width;
    for (int64_t c = 0; c < columns; c += kernel_.nr, first += kernel_.mr * kernel_.nr) {
      const int64_t n = std::min<int64_t>(kernel_.nr, columns - c);
      if (output_.bias)
        for (int64_t i = 0; i < n; ++i) first[i] += output_.bias[c0 + c + i];
      store(first, n, output_.dtype, out + c * width);
    }
  }

  const MicroKernel<T>& kernel_;
  const RowSource<T>& a_;
  const RowSource<T>& b_;
  const Extents e_;
  const Output& output_;
  ThreadPool& threads_;
  const Blocks blocks_;
  const int64_t padded_k_;
  int64_t chunk_rows_, zero_elements_, scratch_elements_, strip_elements_, slot_bytes_;
  std::shared_ptr<void> memory_;
  T* packed_a_;
  std::byte* slots_;
};

}  // namespace

template <class T>
void pack_panel(const RowSource<T>& source, void (*pack)(int64_t, const T* const*, T*), int width, int64_t r, int64_t count,
                int64_t k, int64_t n, PackScratch<T> scratch, T* panel) {
  const T* rows[kMaxTileRows];
  source.rows(r, static_cast<int>(count), k, n, rows, scratch.rows);
  for (int64_t i = count; i < width; ++i) rows[i] = scratch.zeros;
  pack(n, rows, panel);
}

template <class T>
void multiply(const MicroKernel<T>& kernel, const RowSource<T>& a, const RowSource<T>& b, Extents extents,
              const Output& output, const Workers& workers) {
  if (extents.m == 0 || extents.n == 0) return;
  Product<T>(kernel, a, b, extents, output, workers).run();
}

template void pack_panel(const RowSource<float>&, void (*)(int64_t, const float* const*, float*), int, int64_t, int64_t,
                         int64_t, int64_t, PackScratch<float>, float*);
template void pack_panel(const RowSource<bf16>&, void (*)(int64_t, const bf16* const*, bf16*), int, int64_t, int64_t,
                         int64_t, int64_t, PackScratch<bf16>, bf16*);
template void multiply(const MicroKernel<float>&, const RowSource<float>&, const RowSource<float>&, Extents, const Output&,
                       const Workers&);
template void multiply(const MicroKernel<bf16>&, const RowSource<bf16>&, const RowSource<bf16>&, Extents, const Output&,
                       const Workers&);

}  // namespace flux2::gemm
