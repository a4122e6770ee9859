#include "backend/cpu/gemm/convolve.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "backend/cpu/gemm/convert.h"
#include "backend/cpu/gemm/operands.h"

namespace flux2::gemm {

namespace {

// Of a block with its border: with a panel of weights it stays in the second cache level.
constexpr int64_t kBlockBytes = 512 << 10;
constexpr int64_t kBlockColumns = 64;  // more only add to the block's size
constexpr int64_t kAlignment = 64;

// The grid is cut into blocks. A thread copies the pixels that a block reads, with zeros for what is outside the image, and
// converts them to T. In that copy, the pixel that tap t of grid pixel (i, j) reads lies at a fixed distance from pixel (i, j),
// so the rows of the product are the pixels of the copy, one after the other. Those of the border on the right are computed and
// dropped.
template <class T>
class InPlace {
 public:
  InPlace(const MicroKernel<T>& kernel, const Tensor& image, const TapGrid& grid, const RowSource<T>& weights, Extents extents,
          const Output& output, const Workers& workers)
      : kernel_(kernel),
        image_(image),
        grid_(grid),
        weights_(weights),
        e_(extents),
        output_(output),
        workers_(workers),
        channels_(image.dim(3)),
        taps_(e_.k / channels_),
        kernel_rows_(taps_ / grid.kernel_columns),
        padded_(round_up(channels_, kernel.kr)),
        pixel_bytes_(padded_ * static_cast<int64_t>(sizeof(T))) {
    const int64_t threads = workers.threads.size();
    border_rows_ = kernel_rows_ - 1;
    border_columns_ = grid.kernel_columns - 1;
    columns_ = divide_up(grid.columns, divide_up(grid.columns, kBlockColumns));
    width_ = columns_ + border_columns_;
    column_blocks_ = divide_up(grid.columns, columns_);
    const int64_t most = std::max<int64_t>(2, kBlockBytes / (width_ * pixel_bytes_) - border_rows_);
    // Four tasks a thread even out cores of unequal speed, unless the blocks would be mostly border.
    const int64_t batch = image.dim(0), wanted = divide_up(4 * threads, batch * column_blocks_);
    rows_ = std::clamp(divide_up(grid.rows, wanted), std::min<int64_t>(4, most), most);
    rows_ = divide_up(grid.rows, divide_up(grid.rows, rows_));
    row_blocks_ = divide_up(grid.rows, rows_);
    blocks_ = batch * row_blocks_ * column_blocks_;
    panels_ = divide_up(e_.n, kernel.nr);
    panel_groups_ = std::clamp<int64_t>(divide_up(2 * threads, blocks_), 1, panels_);

    tap_bytes_ = kernel.nr * pixel_bytes_;
    for (int64_t t = 0; t < taps_; ++t) {
      const int64_t u = t / grid.kernel_columns, v = t % grid.kernel_columns;
      const int64_t row = grid.direction > 0 ? u : border_rows_ - u, column = grid.direction > 0 ? v : border_columns_ - v;
      offsets_[t] = (row * width_ + column) * pixel_bytes_;
    }
  }

  // Whether this way applies and pays off: pixels step by one, and their channels nearly fill the kernel's steps of k, so that
  // few zeros are multiplied.
  static bool suits(const MicroKernel<T>& kernel, const Tensor& image, const TapGrid& grid, Extents extents) {
    const int64_t channels = image.dim(3);
    return kernel.in_place.run && grid.step == 1 && grid.divide == 1 && channels > 0 && extents.k / channels <= kMostTaps &&
           4 * round_up(channels, kernel.kr) <= 5 * channels;
  }

  void run() {
    const int64_t panel_bytes = taps_ * tap_bytes_, tile_bytes = kernel_.mr * kernel_.nr * static_cast<int64_t>(sizeof(float));
    // The last tile of a block may read behind it.
    const int64_t copy_bytes =
        round_up(((rows_ + border_rows_) * width_ + border_columns_ + kernel_.mr) * pixel_bytes_, kAlignment);
    const int64_t scratch_bytes = round_up(kernel_.nr * channels_ * static_cast<int64_t>(sizeof(T)), kAlignment);
    const int64_t slot_bytes = copy_bytes + std::max(scratch_bytes, tile_bytes), slots = workers_.threads.size();
    const auto memory = workers_.stream.allocate(static_cast<size_t>(panels_ * panel_bytes + slots * slot_bytes));
    packed_ = static_cast<std::byte*>(memory.get());
    std::byte* slot = packed_ + panels_ * panel_bytes;
    const int64_t tasks = blocks_ * panel_groups_;
    workers_.threads.parallel_for(std::min(slots, panels_), [&](int64_t s) {
      for (int64_t panel = s; panel < panels_; panel += std::min(slots, panels_))
        pack(panel, packed_ + panel * panel_bytes, slot + s * slot_bytes);
    });
    std::atomic<int64_t> next{0};
    workers_.threads.parallel_for(std::min(slots, tasks), [&](int64_t s) {
      std::byte* copy = slot + s * slot_bytes;
      std::memset(copy, 0, static_cast<size_t>(copy_bytes));
      auto* tile = reinterpret_cast<float*>(copy + copy_bytes);
      for (int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < tasks;)
        multiply_block(block_at(task / panel_groups_), task % panel_groups_, copy, tile);
    });
  }

 private:
  static constexpr int64_t kMostTaps = 49;

  struct Block {
    int64_t batch, row, column, rows, columns;  // its first pixel of the grid, and how many
  };

  Block block_at(int64_t i) const {
    const int64_t column = i % column_blocks_ * columns_, row = i / column_blocks_ % row_blocks_ * rows_;
    return {i / column_blocks_ / row_blocks_, row, column, std::min(rows_, grid_.rows - row),
            std::min(columns_, grid_.columns - column)};
  }

  void pack(int64_t panel, std::byte* to, std::byte* scratch) const {
    const RowPanels<T> panels(weights_, kernel_.in_place.pack_b, kernel_.nr);
    const int64_t r = panel * kernel_.nr;
    const int count = static_cast<int>(std::min<int64_t>(kernel_.nr, e_.n - r));
    for (int64_t t = 0; t < taps_; ++t) panels.pack(r, count, t * channels_, channels_, scratch, to + t * tap_bytes_);
  }

  // What the block's pixels read of the image. Values behind the channels of a pixel stay zero: nothing writes there.
  void copy_pixels(const Block& block, std::byte* copy) const {
    const int64_t height = image_.dim(1), width = image_.dim(2), element = info(image_.dtype()).block_bytes;
    const auto* data = image_.data<std::byte>() + block.batch * height * width * channels_ * element;
    // The first row and column that any tap reads.
    const int64_t top = block.row - grid_.top - (grid_.direction > 0 ? 0 : border_rows_);
    const int64_t left = block.column - grid_.left - (grid_.direction > 0 ? 0 : border_columns_);
    const int64_t columns = block.columns + border_columns_;
    const int64_t first = std::clamp<int64_t>(-left, 0, columns), last = std::clamp<int64_t>(width - left, first, columns);
    for (int64_t i = 0; i < block.rows + border_rows_; ++i) {
      std::byte* line = copy + i * width_ * pixel_bytes_;
      const bool outside = top + i < 0 || top + i >= height;
      const int64_t begin = outside ? columns : first, end = outside ? columns : last;
      std::memset(line, 0, static_cast<size_t>(begin * pixel_bytes_));
      std::memset(line + end * pixel_bytes_, 0, static_cast<size_t>((columns - end) * pixel_bytes_));
      const std::byte* from = data + ((top + i) * width + left + begin) * channels_ * element;
      if (padded_ == channels_) {
        if (begin < end) copy_values(from, (end - begin) * channels_, line + begin * pixel_bytes_);
      } else {
        for (int64_t j = begin; j < end; ++j, from += channels_ * element) copy_values(from, channels_, line + j * pixel_bytes_);
      }
    }
  }

  void copy_values(const std::byte* from, int64_t count, std::byte* line) const {
    auto* to = reinterpret_cast<T*>(line);
    if (image_.dtype() == kDTypeOf<T>) std::memcpy(line, from, static_cast<size_t>(count) * sizeof(T));
    else if (!kernel_.convert || !kernel_.convert(image_.dtype(), from, 0, count, to))
      convert(image_.dtype(), from, 0, count, to);
  }

  void multiply_block(const Block& block, int64_t group, std::byte* copy, float* tile) const {
    copy_pixels(block, copy);
    const Running running(kernel_);
    const int mr = kernel_.mr, nr = kernel_.nr;
    // Panel by panel: one of weights and the block fit into the second cache level.
    for (int64_t panel = group * panels_ / panel_groups_; panel < (group + 1) * panels_ / panel_groups_; ++panel) {
      const std::byte* weights = packed_ + panel * taps_ * tap_bytes_;
      const int64_t outputs = std::min<int64_t>(nr, e_.n - panel * nr), pixels = (block.rows - 1) * width_ + block.columns;
      for (int64_t pixel = 0; pixel < pixels; pixel += mr) {
        kernel_.in_place.run({copy + pixel * pixel_bytes_, pixel_bytes_, offsets_, taps_, padded_}, weights, tile);
        int64_t i = pixel / width_, j = pixel % width_;
        for (int64_t r = 0; r < std::min<int64_t>(mr, pixels - pixel); ++r) {
          if (j < block.columns) {
            const int64_t row = (block.batch * grid_.rows + block.row + i) * grid_.columns + block.column + j;
            output_.store({tile + r * nr, nr, nr}, row, panel * nr, outputs);
          }
          if (++j == width_) j = 0, ++i;
        }
      }
    }
  }

  const MicroKernel<T>& kernel_;
  const Tensor& image_;
  const TapGrid& grid_;
  const RowSource<T>& weights_;
  const Extents e_;
  const Output& output_;
  const Workers& workers_;
  const int64_t channels_, taps_, kernel_rows_, padded_, pixel_bytes_;  // padded: channels of a pixel of the copy
  int64_t border_rows_, border_columns_, columns_, width_, rows_;       // of a block; width: of its copy
  int64_t column_blocks_, row_blocks_, blocks_, panels_, panel_groups_, tap_bytes_;
  int64_t offsets_[kMostTaps];
  std::byte* packed_ = nullptr;  // weights: [panel][tap]
};

}  // namespace

template <class T>
void convolve(const MicroKernel<T>& kernel, const Tensor& image, const TapGrid& grid, const RowSource<T>& weights,
              Extents extents, const Output& output, const Workers& workers) {
  if (extents.m == 0 || extents.n == 0) return;
  if (InPlace<T>::suits(kernel, image, grid, extents))
    return InPlace<T>(kernel, image, grid, weights, extents, output, workers).run();
  // Each pixel is read by several taps: converting the image once costs less than doing so for each.
  const Tensor converted = extents.k == image.dim(3) ? image : image_as<T>(image);
  multiply(kernel, Patches<T>(converted, grid), weights, extents, output, workers);
}

template void convolve(const MicroKernel<float>&, const Tensor&, const TapGrid&, const RowSource<float>&, Extents, const Output&,
                       const Workers&);
template void convolve(const MicroKernel<bf16>&, const Tensor&, const TapGrid&, const RowSource<bf16>&, Extents, const Output&,
                       const Workers&);

}  // namespace flux2::gemm
