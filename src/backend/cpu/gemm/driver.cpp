#include "backend/cpu/gemm/driver.h"

#include <algorithm>
#include <atomic>

#include "backend/cpu/gemm/compiler.h"

namespace flux2::gemm {

namespace {

// A block of K keeps a panel of a (8 rows: 8 KB) in the first cache level; a strip of b with its tiles of the result
// stays in the second.
constexpr int64_t kBlockBytes = 1024;  // of one row
constexpr int64_t kTaskRows = 768;
constexpr int64_t kLeastTaskRows = 64;
constexpr int64_t kChunkBytes = 24 << 20;  // of packed a: stays in the last cache level
constexpr int64_t kLeastChunkRows = 768;   // fewer, and packing b for every chunk would show
constexpr int64_t kAheadBytes = 16 << 10;  // of a panel of a: a larger one would push out what is in use
constexpr int64_t kAlignment = 64;

// K in equal blocks.
struct Blocks {
  int64_t count, size, k;

  Blocks(int64_t total, int64_t largest, int64_t step)
      : count(std::max<int64_t>(1, divide_up(total, largest))),
        size(std::max(step, round_up(divide_up(total, count), step))),
        k(total) {
    count = std::max<int64_t>(1, divide_up(k, size));
  }
  int64_t begin(int64_t i) const { return i * size; }
  int64_t elements(int64_t i) const { return std::min(size, k - begin(i)); }
};

// The longest block of K, in elements: kBlockBytes of a row of a.
int64_t largest_block(const TileKernel& kernel) {
  return std::max<int64_t>(1, kBlockBytes * kernel.mr / kernel.a_step) * kernel.kr;
}

// How one chunk is shared out: rows and columns of a task, both whole tiles.
struct Split {
  int64_t rows, columns, row_tasks, column_tasks;

  Split(int64_t m, int64_t n, const TileKernel& kernel, int threads) {
    columns = round_up(divide_up(n, divide_up(n, kernel.columns)), kernel.nr);
    column_tasks = divide_up(n, columns);
    // Four tasks a thread even out cores of unequal speed; fewer when the parts would become too small.
    row_tasks = std::max(divide_up(m, kTaskRows), divide_up(4 * threads, column_tasks));
    row_tasks = std::min(row_tasks, divide_up(m, kLeastTaskRows));
    rows = round_up(divide_up(m, row_tasks), kernel.mr);
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

class Product {
 public:
  Product(const TileKernel& kernel, const PanelSource& a, const PanelSource& b, Extents extents, const Output& output,
          const Workers& workers)
      : kernel_(kernel),
        a_(a),
        b_(b),
        e_(extents),
        output_(output),
        threads_(workers.threads),
        blocks_(e_.k, largest_block(kernel), kernel.kr),
        panel_a_bytes_(round_up(kernel.a_bytes(blocks_.size), kAlignment)),
        panel_b_bytes_(round_up(kernel.b_bytes(blocks_.size), kAlignment)) {
    const int64_t most = std::max(kLeastChunkRows, kChunkBytes / (blocks_.count * panel_a_bytes_ / kernel.mr));
    chunk_rows_ = round_up(divide_up(e_.m, divide_up(e_.m, most)), kernel.mr);

    const Split split(std::min(chunk_rows_, e_.m), e_.n, kernel, threads_.size());
    const int64_t task_rows = round_up(std::min(kTaskRows, chunk_rows_), kernel.mr);
    scratch_bytes_ = round_up(std::max(a.scratch_bytes(blocks_.size), b.scratch_bytes(blocks_.size)), kAlignment);
    strip_bytes_ = split.columns / kernel.nr * panel_b_bytes_;
    slot_bytes_ =
        scratch_bytes_ + strip_bytes_ + round_up(task_rows * split.columns * static_cast<int64_t>(sizeof(float)), kAlignment);
    const int64_t packed = chunk_rows_ / kernel.mr * blocks_.count * panel_a_bytes_;
    memory_ = workers.stream.allocate(static_cast<size_t>(packed + slot_bytes_ * threads_.size()));
    packed_a_ = static_cast<std::byte*>(memory_.get());
    slots_ = packed_a_ + packed;
  }

  void run() {
    for (int64_t m0 = 0; m0 < e_.m; m0 += chunk_rows_) {
      const int64_t rows = std::min(chunk_rows_, e_.m - m0);
      for_each_task(threads_, divide_up(rows, kernel_.mr), [&](int64_t s, int64_t panel) { pack_a(slot(s), m0, rows, panel); });
      const Split split(rows, e_.n, kernel_, threads_.size());
      for_each_task(threads_, split.tasks(), [&](int64_t s, int64_t task) { run_task(slot(s), split, m0, rows, task); });
    }
  }

 private:
  struct Slot {
    void* scratch;
    std::byte* strip;  // packed b: columns × one block of K
    float* tiles;      // results of one task
  };

  Slot slot(int64_t i) const {
    std::byte* scratch = slots_ + i * slot_bytes_;
    std::byte* strip = scratch + scratch_bytes_;
    return {scratch, strip, reinterpret_cast<float*>(strip + strip_bytes_)};
  }

  // Packed a is [block][panel], so that a task reads it front to back.
  std::byte* panel_a(int64_t block, int64_t panel) const {
    return packed_a_ + (block * (chunk_rows_ / kernel_.mr) + panel) * panel_a_bytes_;
  }

  void pack_a(const Slot& s, int64_t m0, int64_t rows, int64_t panel) const {
    const int64_t r = panel * kernel_.mr;
    const int count = static_cast<int>(std::min<int64_t>(kernel_.mr, rows - r));
    for (int64_t i = 0; i < blocks_.count; ++i)
      a_.pack(m0 + r, count, blocks_.begin(i), blocks_.elements(i), s.scratch, panel_a(i, panel));
  }

  void run_task(const Slot& s, const Split& split, int64_t m0, int64_t chunk_rows, int64_t task) const {
    const Running running(kernel_);
    const int mr = kernel_.mr, nr = kernel_.nr;
    const int64_t r0 = task % split.row_tasks * split.rows, c0 = task / split.row_tasks * split.columns;
    const int64_t rows = std::min(split.rows, chunk_rows - r0), columns = std::min(split.columns, e_.n - c0);
    const int64_t row_tiles = divide_up(rows, mr), column_tiles = divide_up(columns, nr);

    for (int64_t block = 0; block < blocks_.count; ++block) {
      const int64_t k = blocks_.elements(block), packed_k = round_up(k, kernel_.kr);
      for (int64_t j = 0; j < column_tiles; ++j)
        b_.pack(c0 + j * nr, static_cast<int>(std::min<int64_t>(nr, columns - j * nr)), blocks_.begin(block), k, s.scratch,
                s.strip + j * panel_b_bytes_);
      const Pass pass{block == 0, block == blocks_.count - 1};
      const int64_t share = panel_a_bytes_ <= kAheadBytes ? divide_up(panel_a_bytes_, column_tiles) : 0;
      float* tile = s.tiles;
      for (int64_t i = 0; i < row_tiles; ++i) {
        const std::byte* a = panel_a(block, r0 / mr + i);
        const float* first = tile;
        for (int64_t j = 0; j < column_tiles; ++j, tile += mr * nr) {
          // The next panel of a comes from the last cache level, the next tile from the second.
          prefetch(a + panel_a_bytes_ + j * share, share);
          prefetch(tile + mr * nr, mr * nr * static_cast<int64_t>(sizeof(float)));
          kernel_.run(packed_k, a, s.strip + j * panel_b_bytes_, tile, pass);
        }
        for (int64_t r = 0; pass.last && r < std::min<int64_t>(mr, rows - i * mr); ++r)
          output_.store({first + r * nr, nr, mr * nr}, m0 + r0 + i * mr + r, c0, columns);
      }
    }
  }

  const TileKernel& kernel_;
  const PanelSource& a_;
  const PanelSource& b_;
  const Extents e_;
  const Output& output_;
  ThreadPool& threads_;
  const Blocks blocks_;
  const int64_t panel_a_bytes_, panel_b_bytes_;  // of a whole block of K, to the next alignment
  int64_t chunk_rows_, scratch_bytes_, strip_bytes_, slot_bytes_;
  std::shared_ptr<void> memory_;
  std::byte* packed_a_;
  std::byte* slots_;
};

}  // namespace

void multiply(const TileKernel& kernel, const PanelSource& a, const PanelSource& b, Extents extents, const Output& output,
              const Workers& workers) {
  if (extents.m == 0 || extents.n == 0) return;
  Product(kernel, a, b, extents, output, workers).run();
}

}  // namespace flux2::gemm
