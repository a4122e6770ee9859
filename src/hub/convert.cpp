#include "hub/convert.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>

#include "base/error.h"
#include "base/resumable_file.h"
#include "base/thread_pool.h"
#include "weights/encode_blocks.h"
#include "weights/read_values.h"
#include "weights/round_eight_bit.h"
#include "weights/weight_rows.h"

namespace flux2 {

namespace {

constexpr int64_t kChunkElements = 4 << 20;  // read and rounded at a time: 16 MB as f32
constexpr uint64_t kMarkBytes = 64 << 20;    // between two marks, each of which waits for the disk

struct Squares {
  double error = 0, norm = 0;

  void add(const Squares& other) { error += other.error, norm += other.norm; }
  double relative() const { return norm > 0 ? std::sqrt(error / norm) : 0; }
};

// One row as it is stored, and how far that is from the row.
Squares store_row(DType dtype, const float* x, int64_t width, float scale, std::byte* out, float* back) {
  switch (dtype) {
    case DType::F32: std::memcpy(out, x, static_cast<size_t>(width) * sizeof(float)); return {};
    case DType::F16:
      for (int64_t i = 0; i < width; ++i) reinterpret_cast<f16*>(out)[i] = to_f16(x[i]);
      break;
    case DType::BF16:
      for (int64_t i = 0; i < width; ++i) reinterpret_cast<bf16*>(out)[i] = to_bf16(x[i]);
      break;
    case DType::F8_E4M3: round_to_e4m3(x, width, scale > 0 ? 1.0f / scale : 0.0f, reinterpret_cast<uint8_t*>(out)); break;
    case DType::I8: round_to_int8(x, width, scale > 0 ? 1.0f / scale : 0.0f, reinterpret_cast<int8_t*>(out)); break;
    default: encode_blocks(dtype, x, width, out);
  }
  read_values(dtype, out, width, back);
  const float factor = dtype == DType::F8_E4M3 || dtype == DType::I8 ? scale : 1.0f;
  Squares s;
  for (int64_t i = 0; i < width; ++i) {
    const double e = static_cast<double>(back[i]) * factor - x[i];
    s.error += e * e;
    s.norm += static_cast<double>(x[i]) * x[i];
  }
  return s;
}

class Converter {
 public:
  Converter(const NamedWeights& weights, const ConvertOptions& options)
      : weights_(weights),
        options_(options),
        plan_(plan_conversion(weights, options.choice)),
        threads_(options.threads),
        file_(options.out, fingerprint()) {}

  ConvertReport run(const Log& log) {
    check_space();
    report_.resumed_from = file_.resumed_from();
    if (file_.size() > 0) log.info("going on with {} after {} MB", options_.out.string(), file_.size() >> 20);
    else file_.write(std::as_bytes(std::span(plan_.header)));
    uint64_t end = plan_.header.size(), marked = file_.size();
    for (const PlannedTensor& t : plan_.tensors) {
      end += plan_.bytes_of(t) + plan_.padding_of(t);
      if (end <= file_.size() && plan_.bytes_of(t) > 0) continue;  // an earlier attempt wrote it
      write(t);
      if (file_.size() - marked >= kMarkBytes) file_.mark(), marked = file_.size();
      if (options_.progress && !options_.progress(file_.size(), plan_.total_bytes(), t.name)) {
        file_.mark();
        fail(ErrorCode::Cancelled, "stopped; the same command goes on from here");
      }
    }
    report_.bytes = file_.size();
    report_.tensors = plan_.tensors.size();
    report_.total_error = total_.relative();
    file_.commit();
    return std::move(report_);
  }

 private:
  // Whatever decides the bytes: the header, which tells names and types, and the files read.
  std::string fingerprint() const {
    std::string text = plan_.header;
    for (const StoredTensor& t : weights_.source().tensors())
      if (t.file) {
        std::error_code ignored;
        const auto time = std::filesystem::last_write_time(t.file->path(), ignored).time_since_epoch().count();
        text += fmt::format("{} {} {}\n", t.file->path().string(), t.file->bytes().size(), time);
      }
    uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
    for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
    return fmt::format("{:016x} {}", hash, plan_.total_bytes());
  }

  void check_space() const {
    std::error_code unknown;
    const auto folder = options_.out.parent_path().empty() ? std::filesystem::path(".") : options_.out.parent_path();
    const auto space = std::filesystem::space(folder, unknown);
    const uint64_t wanted = plan_.total_bytes() - file_.size();
    if (unknown || space.available >= wanted) return;
    throw Error(ErrorCode::CannotWrite,
                fmt::format("{} needs {} MB, {} has {} MB free", options_.out.string(), wanted >> 20, folder.string(),
                            space.available >> 20),
                "make room, or write to another disk");
  }

  void write(const PlannedTensor& t) {
    using Role = PlannedTensor::Role;
    switch (t.role) {
      case Role::Text: file_.write(std::as_bytes(std::span(t.text))); break;
      case Role::TensorScale:
      case Role::RowScales: file_.write(std::as_bytes(std::span(scales(t)))); break;
      case Role::Values: write_values(t); break;
    }
    const std::vector<std::byte> zeros(plan_.padding_of(t));
    file_.write(zeros);
    if (t.role == Role::Values)
      weights_.forget_pages(t.canonical);  // else the pages of all tensors read so far would push out what others need
  }

  static std::vector<int64_t> row_list(const PlannedTensor& t) {
    std::vector<int64_t> list;
    for (const IndexRange& r : t.rows)
      for (int64_t i = r.begin; i < r.end; ++i) list.push_back(i);
    return list;
  }

  // The largest magnitude of each row, over the range of the type; of the whole for FP8.
  const std::vector<float>& scales(const PlannedTensor& t) {
    const bool whole = t.role == PlannedTensor::Role::TensorScale || t.dtype == DType::F8_E4M3;
    const std::string weight =
        t.role == PlannedTensor::Role::Values ? t.name : t.name.substr(0, t.name.size() - std::strlen("_scale"));
    auto& known = scales_[weight];
    if (!known.empty()) return known;
    const WeightRows rows(weights_, t.canonical);
    const std::vector<int64_t> list = row_list(t);
    known.resize(list.size());
    threads_.parallel_ranges(static_cast<int64_t>(list.size()), 16, [&](int64_t begin, int64_t end) {
      std::vector<float> row(static_cast<size_t>(rows.width()));
      for (int64_t i = begin; i < end; ++i) {
        rows.values(list[static_cast<size_t>(i)], row.data());
        float largest = 0;
        for (float v : row) largest = std::max(largest, std::abs(v));
        known[static_cast<size_t>(i)] = largest / (whole ? 448.0f : 127.0f);
      }
    });
    if (whole) known = {*std::max_element(known.begin(), known.end())};
    return known;
  }

  void write_values(const PlannedTensor& t) {
    const WeightRows rows(weights_, t.canonical);
    const std::vector<int64_t> list = row_list(t);
    const auto row_bytes = static_cast<size_t>(bytes_for(t.dtype, rows.width()));
    const bool same = rows.stores(t.dtype);
    const bool scaled = t.dtype == DType::F8_E4M3 || t.dtype == DType::I8;
    const std::vector<float> factors = scaled ? scales(t) : std::vector<float>{1.0f};
    const int64_t chunk = std::max<int64_t>(1, kChunkElements / rows.width());
    std::vector<std::byte> stored;
    Squares squares;
    std::mutex sums;
    for (int64_t first = 0; first < static_cast<int64_t>(list.size()); first += chunk) {
      const int64_t count = std::min<int64_t>(chunk, static_cast<int64_t>(list.size()) - first);
      stored.resize(static_cast<size_t>(count) * row_bytes);
      threads_.parallel_ranges(count, 4, [&](int64_t begin, int64_t end) {
        std::vector<float> row(static_cast<size_t>(rows.width())), back(row.size());
        Squares mine;
        for (int64_t i = begin; i < end; ++i) {
          const auto at = static_cast<size_t>(first + i);
          std::byte* out = stored.data() + static_cast<size_t>(i) * row_bytes;
          if (same) {
            rows.bytes(list[at], t.dtype, out);
            continue;
          }
          rows.values(list[at], row.data());
          mine.add(store_row(t.dtype, row.data(), rows.width(), factors[factors.size() == 1 ? 0 : at], out, back.data()));
        }
        const std::lock_guard lock(sums);
        squares.add(mine);
      });
      file_.write(stored);
    }
    if (same) return;
    report_.changed.push_back({t.name, rows.stored_as(), name_of(t.dtype), squares.relative()});
    total_.add(squares);
  }

  const NamedWeights& weights_;
  const ConvertOptions& options_;
  ConvertPlan plan_;
  ThreadPool threads_;
  ResumableFile file_;
  std::map<std::string, std::vector<float>> scales_;  // by the name of the weight
  ConvertReport report_;
  Squares total_;
};

}  // namespace

ConvertReport convert_model(const NamedWeights& weights, const ConvertOptions& options, const Log& log) {
  check(!weights.names().empty(), "{} holds no {}", weights.source().description(), name_of(weights.part()));
  for (const StoredTensor& t : weights.source().tensors())
    check(!t.file || !std::filesystem::exists(options.out) || !std::filesystem::equivalent(t.file->path(), options.out),
          "{} would be written over itself", options.out.string());
  return Converter(weights, options).run(log);
}

}  // namespace flux2
