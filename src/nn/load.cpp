#include "nn/load.h"

#include <fmt/format.h>

#include <array>
#include <string>
#include <vector>

#include "ops/linear.h"

namespace flux2 {

namespace {

Shard shard_for(const Spread& spread, Communicator* ranks) {
  if (!ranks || ranks->size() == 1 || spread.kind == Spread::Whole) return {};
  return {.axis = spread.kind == Spread::Rows ? 0 : 1, .rank = ranks->rank(), .count = ranks->size(), .parts = spread.parts};
}

Tensor in_host_memory(const Tensor& t) {
  if (t.on_host_only() || t.device().is_host()) return t;
  const Tensor source = t.contiguous(), copy = Tensor::host_empty(t.dtype(), t.shape());
  source.stream().download(copy.raw(), source.raw(), static_cast<size_t>(source.bytes()));
  return copy;
}

// [O, I, kh, kw] as [O, kh, kw, I] on the stream.
Tensor conv_from_file(const Tensor& stored, Stream& stream) {
  constexpr std::array<int, 4> order{0, 2, 3, 1};
  const Tensor t = stored.to(stream);  // blocks lie along an axis that is not the last one of the result
  return (is_block_type(t.dtype()) ? t.cast(DType::BF16) : t).permuted(order).contiguous();
}

}  // namespace

Shape config_shape(const NamedWeights& weights, const std::string& name, int rank) {
  const std::string& file = weights.source().description();
  if (!weights.has(name)) fail(ErrorCode::Incompatible, "{} has no tensor {}", file, name);
  const Shape shape = weights.shape(name);
  if (shape.rank() != rank)
    throw Error(ErrorCode::Incompatible,
                fmt::format("{}: the tensor {} has shape {}; {} axes are expected", file, name, shape, rank),
                Hint("{0} shows what the file contains", {run_command("inspect FILE")}));
  for (const int64_t extent : shape)
    if (extent < 1 || extent > kMostExtent)
      throw Error(
          ErrorCode::BadFile,
          fmt::format("{}: the tensor {} has shape {}; extents from 1 to {} are possible", file, name, shape, kMostExtent),
          Hint("the file is damaged; {0} shows what it contains", {run_command("inspect FILE")}));
  return shape;
}

void check_parameters(const NamedWeights& weights, const std::function<void(const ParameterVisitor&)>& visit) {
  std::vector<std::string> faults;
  visit([&](const Parameter& p) {
    if (!weights.has(p.name)) faults.push_back(fmt::format("{} {} is missing", p.name, p.shape));
    else if (weights.shape(p.name) != p.shape)
      faults.push_back(fmt::format("{} is {}, expected {}", p.name, weights.shape(p.name), p.shape));
  });
  if (faults.empty()) return;
  const size_t shown = std::min<size_t>(faults.size(), 10);
  std::string list = fmt::format("{}", fmt::join(faults.begin(), faults.begin() + static_cast<ptrdiff_t>(shown), "; "));
  if (faults.size() > shown) list += fmt::format("; and {} more", faults.size() - shown);
  throw Error(ErrorCode::Incompatible,
              fmt::format("{} does not contain the expected tensors: {}", weights.source().description(), list),
              Hint("the file is damaged or belongs to another model; {0} shows what it contains", {run_command("inspect FILE")}));
}

Tensor quantised_on(Stream& stream, const Tensor& matrix, Quant quant, ThreadPool& threads) {
  const Device& device = stream.device();
  if ((quant == Quant::Fp8 || quant == Quant::Int8) && matrix.dtype() == DType::BF16 && device.multiplies(dtype_of(quant)))
    return as_input(matrix.to(stream), dtype_of(quant));
  const Tensor quantised = quantise(in_host_memory(matrix), quant, threads);
  return device.is_host() ? quantised : quantised.to(stream);
}

bool is_quantised(const Parameter& p, Quant quant) {
  return !block_of(p.name).empty() && p.kind == ParameterKind::Matrix && can_quantise(p.shape, quant);
}

DType loaded_dtype(const Parameter& p, DType stored, Quant quant, DType activations) {
  if (p.kind == ParameterKind::Vector) return activations;
  if (p.kind == ParameterKind::Statistic) return DType::F32;
  if (p.kind == ParameterKind::Conv && is_block_type(stored)) return DType::BF16;
  // Types that exist in memory only may be quantised again, as the BF16 that other programs make of such files.
  const bool may_change = is_float(stored) || stored == DType::F8_128 || stored == DType::NVFP4;
  return is_quantised(p, quant) && may_change ? dtype_of(quant) : stored;
}

std::vector<std::pair<std::string, Shape>> quantised_matrices(const NamedWeights& weights, Quant quant,
                                                              const std::function<void(const ParameterVisitor&)>& visit) {
  std::vector<std::pair<std::string, Shape>> matrices;
  visit([&](const Parameter& p) {
    const DType stored = weights.dtype(p.name);
    if (p.kind == ParameterKind::Matrix && loaded_dtype(p, stored, quant, DType::F32) != stored)
      matrices.emplace_back(p.name, p.shape);
  });
  return matrices;
}

namespace {

// Types that exist in memory only are quantised as the BF16 that they stand for.
Tensor floats_from_file(const NamedWeights& weights, const Parameter& p, const Shard& shard) {
  const Tensor stored = weights.open(p.name, shard);
  return is_block_type(stored.dtype()) ? stored.cast(DType::BF16) : stored;
}

// A matrix in host memory. One that the file stores in pieces is read from them row by row: bringing them together first would be
// work for one core.
Tensor quantised_from_file(const NamedWeights& weights, const Parameter& p, const Shard& shard, Quant quant,
                           ThreadPool& threads) {
  if (shard.whole() && weights.pieces(p.name).size() > 1)
    if (const WeightRows rows(weights, p.name); is_float(weights.dtype(p.name)) && rows.stores(weights.dtype(p.name)))
      return quantise(
          p.shape, [&](int64_t row, float* out) { rows.values(row, out); }, quant, threads);
  return quantise(floats_from_file(weights, p, shard), quant, threads);
}

}  // namespace

void load_parameters(const NamedWeights& weights, const LoadOptions& options,
                     const std::function<void(const ParameterVisitor&)>& visit) {
  check_parameters(weights, visit);
  const bool host = options.stream.device().is_host();
  ThreadPool threads(options.quant == Quant::None ? 1 : options.threads);
  const auto stays = [&](const Parameter& p) { return host || (options.stays_on_host && options.stays_on_host(p)); };
  const auto in_place = [&](const Parameter& p, const Tensor& t) { return stays(p) ? t : t.to(options.stream); };
  // Where weights are quantised, the disk reads the next one meanwhile.
  const auto to_come = quantised_matrices(weights, options.quant, visit);
  size_t next = 0;
  visit([&](const Parameter& p) {
    const Shard shard = shard_for(p.spread, options.ranks);
    if (next < to_come.size() && to_come[next].first == p.name) {
      ++next;
      if (const Tensor kept = options.kept ? options.kept(p) : Tensor(); kept.defined()) {
        p.tensor = in_place(p, kept);
        return;
      }
      if (next < to_come.size()) weights.want_pages(to_come[next].first);
      p.tensor = stays(p) ? quantised_from_file(weights, p, shard, options.quant, threads)
                          : quantised_on(options.stream, floats_from_file(weights, p, shard), options.quant, threads);
      weights.forget_pages(p.name);  // else the file's copy would count beside ours
      if (options.quantised) options.quantised(p, p.tensor);
      return;
    }
    const Tensor stored = weights.open(p.name, shard);
    const DType kept = loaded_dtype(p, stored.dtype(), options.quant, options.activations);
    switch (p.kind) {
      case ParameterKind::Matrix:
      case ParameterKind::Table: p.tensor = in_place(p, stored); break;
      case ParameterKind::Vector:
      case ParameterKind::Statistic: p.tensor = stored.to(options.stream).cast(kept); break;
      case ParameterKind::Conv: p.tensor = conv_from_file(stored, options.stream); break;
    }
  });
}

}  // namespace flux2
