#include "hub/weight_encoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "weights/encode_blocks.h"
#include "weights/quantised_kinds.h"
#include "weights/read_values.h"
#include "weights/round_values.h"

namespace flux2 {

namespace {

int64_t blocks_in(int64_t extent, int64_t side) { return (extent + side - 1) / side; }

float range_of(DType dtype) { return dtype == DType::I8 ? 127.0f : 448.0f; }

// `count` values rounded to 8 bits, and their decoded values: bit-identical to quantising while loading (weights/quantise).
void eight_bits(DType dtype, const float* x, int64_t count, float largest, std::byte* out, float* back) {
  const float factor = largest > 0 ? range_of(dtype) / largest : 0.0f, scale = largest / range_of(dtype);
  if (dtype == DType::I8) round_to_int8(x, count, factor, reinterpret_cast<int8_t*>(out));
  else round_to_e4m3(x, count, factor, reinterpret_cast<uint8_t*>(out));
  read_values(dtype, out, count, back);
  for (int64_t i = 0; i < count; ++i) back[i] *= scale;
}

void plain(DType dtype, const float* x, int64_t count, std::byte* out, float* back) {
  switch (dtype) {
    case DType::F32: std::memcpy(out, x, static_cast<size_t>(count) * sizeof(float)); break;
    case DType::F16: std::transform(x, x + count, reinterpret_cast<f16*>(out), to_f16); break;
    case DType::BF16: std::transform(x, x + count, reinterpret_cast<bf16*>(out), to_bf16); break;
    default: encode_blocks(dtype, x, count, out);
  }
  read_values(dtype, out, count, back);
}

void four_bits(const float* x, int64_t count, float global, std::byte* out, float* back) {
  std::vector<uint8_t> scales(static_cast<size_t>(count / kNvfp4Group));
  nvfp4_scales(x, count, global, scales.data());
  auto* codes = reinterpret_cast<uint8_t*>(out);
  nvfp4_codes(x, count, global, scales.data(), codes);
  for (int64_t j = 0; j < count; j += kNvfp4Group) {
    const float scale = e4m3_to_float(scales[static_cast<size_t>(j / kNvfp4Group)]) * global;
    for (int64_t i = j; i < j + kNvfp4Group; i += 2) {
      back[i] = kE2m1[codes[i / 2] >> 4] * scale;
      back[i + 1] = kE2m1[codes[i / 2] & 15] * scale;
    }
  }
}

}  // namespace

double SquaredError::relative() const { return norm > 0 ? std::sqrt(error / norm) : 0; }

WeightEncoder::WeightEncoder(Quantisation type, const WeightRows& rows, std::vector<int64_t> chosen, ThreadPool& threads)
    : type_(type), rows_(rows), chosen_(std::move(chosen)), copy_(type.scales == Scales::None && rows.stores(type.dtype)) {
  if (type_.scales != Scales::None) find_scales(threads);
}

size_t WeightEncoder::row_bytes() const {
  return static_cast<size_t>(type_.scales == Scales::Nvfp4 ? rows_.width() / 2 : bytes_for(type_.dtype, rows_.width()));
}

// The largest magnitude of the values that share a scale, divided by the largest number of the type.
void WeightEncoder::find_scales(ThreadPool& threads) {
  const int64_t width = type_.scales == Scales::Blocks ? kScaleBlock : rows_.width();
  const int64_t height = type_.scales == Scales::Rows     ? 1
                         : type_.scales == Scales::Blocks ? kScaleBlock
                                                          : std::max<int64_t>(1, count());
  scale_columns_ = blocks_in(rows_.width(), width);
  std::vector<float> of_rows(static_cast<size_t>(count() * scale_columns_));
  threads.parallel_ranges(count(), 16, [&](int64_t begin, int64_t end) {
    std::vector<float> row(static_cast<size_t>(rows_.width()));
    for (int64_t i = begin; i < end; ++i) {
      rows_.values(chosen_[static_cast<size_t>(i)], row.data());
      for (int64_t j = 0; j < rows_.width(); ++j) {
        float& largest = of_rows[static_cast<size_t>(i * scale_columns_ + j / width)];
        largest = std::max(largest, std::abs(row[static_cast<size_t>(j)]));
      }
    }
  });
  largest_.assign(static_cast<size_t>(blocks_in(count(), height) * scale_columns_), 0.0f);
  for (int64_t i = 0; i < count(); ++i)
    for (int64_t j = 0; j < scale_columns_; ++j) {
      float& largest = largest_[static_cast<size_t>(i / height * scale_columns_ + j)];
      largest = std::max(largest, of_rows[static_cast<size_t>(i * scale_columns_ + j)]);
    }
  for (const float most : largest_)
    scales_.push_back(type_.scales == Scales::Nvfp4 ? nvfp4_global(most) : most / range_of(type_.dtype));
}

SquaredError WeightEncoder::encode(int64_t i, std::byte* out) const {
  const int64_t row = chosen_[static_cast<size_t>(i)], width = rows_.width();
  if (copy_) {
    rows_.bytes(row, type_.dtype, out);
    return {};
  }
  std::vector<float> x(static_cast<size_t>(width)), back(x.size());
  rows_.values(row, x.data());
  switch (type_.scales) {
    case Scales::None: plain(type_.dtype, x.data(), width, out, back.data()); break;
    case Scales::Tensor: eight_bits(type_.dtype, x.data(), width, largest_[0], out, back.data()); break;
    case Scales::Rows: eight_bits(type_.dtype, x.data(), width, largest_[static_cast<size_t>(i)], out, back.data()); break;
    case Scales::Blocks:
      for (int64_t j = 0; j < width; j += kScaleBlock)
        eight_bits(type_.dtype, x.data() + j, std::min(kScaleBlock, width - j),
                   largest_[static_cast<size_t>(i / kScaleBlock * scale_columns_ + j / kScaleBlock)], out + j, back.data() + j);
      break;
    case Scales::Nvfp4: four_bits(x.data(), width, scales_[0], out, back.data()); break;
  }
  SquaredError s;
  for (size_t j = 0; j < x.size(); ++j) {
    const double e = static_cast<double>(back[j]) - x[j];
    s.error += e * e;
    s.norm += static_cast<double>(x[j]) * x[j];
  }
  return s;
}

std::vector<std::byte> WeightEncoder::tiled_scales(ThreadPool& threads) const {
  const int64_t groups = rows_.width() / kNvfp4Group;
  std::vector<std::byte> tiles(static_cast<size_t>(blocks_in(count(), 128) * 128 * blocks_in(groups, 4) * 4));
  threads.parallel_ranges(count(), 16, [&](int64_t begin, int64_t end) {
    std::vector<float> row(static_cast<size_t>(rows_.width()));
    std::vector<uint8_t> scales(static_cast<size_t>(groups));
    for (int64_t i = begin; i < end; ++i) {
      rows_.values(chosen_[static_cast<size_t>(i)], row.data());
      nvfp4_scales(row.data(), rows_.width(), scales_[0], scales.data());
      for (int64_t g = 0; g < groups; ++g)
        tiles[static_cast<size_t>(tiled_scale_offset(i, g, groups))] = static_cast<std::byte>(scales[static_cast<size_t>(g)]);
    }
  });
  return tiles;
}

}  // namespace flux2
