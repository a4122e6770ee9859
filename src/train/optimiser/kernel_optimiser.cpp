#include "train/optimiser/kernel_optimiser.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "base/text.h"
#include "train/optimiser/code_books.h"

namespace flux2 {

namespace {

// The values as the kernel reads them: on that stream, contiguous, F32 or BF16.
Tensor readable_gradient(const Tensor& gradient, Stream& stream) {
  Tensor g = gradient.to(stream).contiguous();
  return g.dtype() == DType::F32 || g.dtype() == DType::BF16 ? g : g.cast(DType::F32);
}

void call_optimise(const OptimiseArgs& args) {
  const auto kernel = args.stream.device().kernels().optimise;
  if (!kernel) fail(ErrorCode::Device, "{} cannot train: it has no kernel for optimisers", args.stream.device().name());
  kernel(args);
}

}  // namespace

KernelOptimiser::KernelOptimiser(std::vector<ParameterGroup> groups, uint64_t seed, bool decay_all)
    : seed_(seed), decay_all_(decay_all) {
  for (ParameterGroup& group : groups) {
    check(group.learning_rate >= 0 && std::isfinite(group.learning_rate), "the learning rate {} is not a number above 0",
          group.learning_rate);
    for (TrainedTensor& tensor : group.tensors) {
      Parameter p{
          .name = std::move(tensor.name), .value = tensor.value.detached(), .group = groups_.size(), .slots = {}, .entry = {}};
      require(p.value.defined() && p.value.is_contiguous() && p.value.numel() > 0, "{} is not contiguous", p.name);
      require(p.value.dtype() == DType::F32 || p.value.dtype() == DType::BF16, "{} is {}; F32 and BF16 can be trained", p.name,
              name_of(p.value.dtype()));
      OptimiserTensor& e = p.entry;
      e.p = p.value.raw();
      e.p_is_bf16 = p.value.dtype() == DType::BF16;
      e.count = p.value.numel();
      e.index = static_cast<uint32_t>(parameters_.size());
      e.factored = p.value.rank() >= 2;
      e.rows = e.factored ? p.value.dim(-2) : 1;
      e.columns = e.factored ? p.value.dim(-1) : e.count;
      parameters_.push_back(std::move(p));
    }
    groups_.emplace_back(std::move(group.name), group.learning_rate);
  }
}

Tensor KernelOptimiser::add_slot(Parameter& parameter, int at, const std::string& name, DType dtype, const Shape& shape) {
  const Tensor slot = Tensor::empty(parameter.value.stream(), dtype, shape);
  slot.fill(0);
  parameter.entry.state[at] = slot.raw();
  parameter.slots.emplace_back(name, slot);
  return slot;
}

void KernelOptimiser::add_plain_slots(Parameter& parameter, const std::vector<std::string>& names) {
  for (size_t i = 0; i < names.size(); ++i)
    add_slot(parameter, static_cast<int>(i), names[i], DType::F32, parameter.value.shape());
}

void KernelOptimiser::add_8bit_slots(Parameter& parameter, int count) {
  const int64_t blocks = (parameter.value.numel() + kCodeBlock - 1) / kCodeBlock;
  for (int i = 0; i < count; ++i) add_slot(parameter, i, fmt::format("state{}", i + 1), DType::U8, parameter.value.shape());
  for (int i = 0; i < count; ++i) add_slot(parameter, count + i, fmt::format("absmax{}", i + 1), DType::F32, {blocks});
}

void KernelOptimiser::add_factored_slots(Parameter& parameter, int at, const std::string& row, const std::string& column) {
  const Shape& shape = parameter.value.shape();
  add_slot(parameter, at, row, DType::F32, shape.first(shape.rank() - 1));
  add_slot(parameter, at + 1, column, DType::F32, shape.first(shape.rank() - 2).append(shape[-1]));
}

KernelOptimiser::Gradient KernelOptimiser::checked(size_t tensor, const Tensor& gradient) const {
  const Parameter& p = parameters_.at(tensor);
  require(gradient.shape() == p.value.shape(), "a gradient of shape {} for {} of shape {}", gradient.shape(), p.name,
          p.value.shape());
  return {tensor, readable_gradient(gradient, p.value.stream())};
}

void KernelOptimiser::begin_step(double factor) {
  ++step_;
  factor_ = factor;
  set_numbers(factor);
}

void KernelOptimiser::step(std::span<const Tensor> gradients, double factor, double gradient_scale) {
  require(gradients.size() == parameters_.size(), "{} gradients for {} parameters", gradients.size(), parameters_.size());
  begin_step(factor);
  numbers_.gradient_scale = static_cast<float>(gradient_scale);
  std::vector<Gradient> used;
  for (size_t i = 0; i < gradients.size(); ++i)
    if (gradients[i].defined()) used.push_back(checked(i, gradients[i]));
  update(used);
}

void KernelOptimiser::step_one(size_t tensor, const Tensor& gradient, double gradient_scale) {
  require(steps_one_by_one(), "this optimiser needs all gradients at once");
  require(step_ > 0, "step_one before begin_step");
  numbers_.gradient_scale = static_cast<float>(gradient_scale);
  const Gradient one = checked(tensor, gradient);
  update({&one, 1});
}

void KernelOptimiser::update(std::span<const Gradient> gradients) { run(gradients); }

KernelOptimiser::RuleSums KernelOptimiser::run(std::span<const Gradient> gradients) { return run_by_rule(gradients, nullptr); }
KernelOptimiser::RuleSums KernelOptimiser::run(std::span<const Gradient> gradients, OptimiserRule rule) {
  return run_by_rule(gradients, &rule);
}

KernelOptimiser::RuleSums KernelOptimiser::run_by_rule(std::span<const Gradient> gradients, const OptimiserRule* rule) {
  struct Call {
    OptimiserRule rule;
    Stream* stream;
    std::vector<OptimiserTensor> entries;
  };
  std::vector<Call> calls;
  for (const Gradient& gradient : gradients) {
    const Parameter& p = parameters_[gradient.tensor];
    const OptimiserRule its_rule = rule ? *rule : p.rule;
    Stream* stream = &p.value.stream();
    auto found =
        std::find_if(calls.begin(), calls.end(), [&](const Call& c) { return c.rule == its_rule && c.stream == stream; });
    if (found == calls.end()) found = calls.insert(calls.end(), {its_rule, stream, {}});
    OptimiserTensor entry = p.entry;
    entry.g = gradient.value.raw();
    entry.g_is_bf16 = gradient.value.defined() && gradient.value.dtype() == DType::BF16;
    set_rates(p, entry);
    found->entries.push_back(entry);
  }
  RuleSums total;
  for (const Call& c : calls) {
    const auto [first, second] = call(c.rule, *c.stream, c.entries);
    total.first += first;
    total.second += second;
  }
  return total;
}

KernelOptimiser::RuleSums KernelOptimiser::call(OptimiserRule rule, Stream& stream, std::span<const OptimiserTensor> entries) {
  const bool eight_bits =
      rule == OptimiserRule::AdamW8bit || rule == OptimiserRule::Lion8bit || rule == OptimiserRule::AdEmaMix8bit;
  const bool has_sums = rule == OptimiserRule::ProdigySums;
  const Tensor sums = has_sums ? Tensor::empty(stream, DType::F64, {2}) : Tensor();
  const CodeBooks* books = eight_bits ? &books_on(stream) : nullptr;
  call_optimise({.rule = rule,
                 .numbers = numbers_,
                 .tensors = entries,
                 .stream = stream,
                 .signed_codes = books ? books->with_sign.data<float>() : nullptr,
                 .unsigned_codes = books ? books->without_sign.data<float>() : nullptr,
                 .sums = has_sums ? sums.data<double>() : nullptr,
                 .seed = seed_,
                 .step = static_cast<uint64_t>(step_ - 1)});
  if (!has_sums) return {};
  const std::vector<double> values = sums.to_doubles();
  return {values[0], values[1]};
}

const KernelOptimiser::CodeBooks& KernelOptimiser::books_on(Stream& stream) {
  for (const CodeBooks& books : books_)
    if (books.stream == &stream) return books;
  const auto copy = [&](const std::array<float, 256>& book) {
    return Tensor::from<float>(stream, DType::F32, {256}, std::span<const float>(book));
  };
  books_.push_back({&stream, copy(signed_code_book()), copy(unsigned_code_book())});
  return books_.back();
}

std::vector<std::pair<std::string, Tensor>> KernelOptimiser::slots() const {
  std::vector<std::pair<std::string, Tensor>> out;
  for (const Parameter& p : parameters_)
    for (const auto& [name, tensor] : p.slots) out.emplace_back(p.name + "/" + name, tensor);
  return out;
}

void KernelOptimiser::load_slots(const std::vector<std::pair<std::string, Tensor>>& given) {
  std::unordered_map<std::string, const Tensor*> by_name;
  for (const auto& [name, tensor] : given) by_name.emplace(name, &tensor);
  for (const auto& [name, slot] : slots()) {
    const auto found = by_name.find(name);
    if (found == by_name.end())
      fail(ErrorCode::BadFile, "the saved optimiser state has no tensor {}; it belongs to another run", printable(name));
    const Tensor& saved = *found->second;
    if (saved.dtype() != slot.dtype() || saved.shape() != slot.shape())
      fail(ErrorCode::BadFile, "{} of the saved optimiser state is {} {}, but this run needs {} {}", printable(name),
           name_of(saved.dtype()), saved.shape(), name_of(slot.dtype()), slot.shape());
    if (saved.on_host_only()) slot.stream().upload(slot.raw(), saved.raw(), static_cast<size_t>(slot.bytes()));
    else slot.copy_from(saved.to(slot.stream()));
  }
}

Json KernelOptimiser::scalars() const {
  Json out{{"step", step_}};
  save_numbers(out);
  return out;
}

void KernelOptimiser::load_scalars(const Json& scalars) {
  int64_t step = -1;
  read_member(scalars, "step", step);
  if (step < 0) fail(ErrorCode::BadFile, "the saved optimiser state does not say how many steps it has done");
  step_ = step;
  load_numbers(scalars);
}

std::vector<double> KernelOptimiser::effective_rates() const {
  std::vector<double> out;
  for (size_t i = 0; i < groups_.size(); ++i) out.push_back(group_rate(i));
  return out;
}

std::vector<double> read_betas(PythonOptions& options, std::vector<double> otherwise) {
  std::vector<double> betas = options.numbers("betas", std::move(otherwise));
  for (const double beta : betas)
    check(beta >= 0 && beta < 1, "optimizer_args: betas must be at least 0 and below 1, not {}", beta);
  return betas;
}

double read_positive(PythonOptions& options, const std::string& key, double otherwise) {
  const double value = options.number(key, otherwise);
  check(value > 0, "optimizer_args: {} is {}; use a number above 0", key, value);
  return value;
}

double read_not_negative(PythonOptions& options, const std::string& key, double otherwise) {
  const double value = options.number(key, otherwise);
  check(value >= 0, "optimizer_args: {} is {}; use 0 or more", key, value);
  return value;
}

double gradient_norm(std::span<const Tensor> gradients) {
  std::vector<Tensor> kept;  // copies must live until the kernel has run
  std::vector<std::pair<Stream*, std::vector<OptimiserTensor>>> by_stream;
  for (const Tensor& gradient : gradients) {
    if (!gradient.defined() || gradient.numel() == 0) continue;
    Stream* stream = &gradient.stream();
    kept.push_back(readable_gradient(gradient, *stream));
    auto found = std::find_if(by_stream.begin(), by_stream.end(), [&](const auto& s) { return s.first == stream; });
    if (found == by_stream.end()) found = by_stream.insert(by_stream.end(), {stream, {}});
    OptimiserTensor entry;
    entry.g = kept.back().raw();
    entry.g_is_bf16 = kept.back().dtype() == DType::BF16;
    entry.count = kept.back().numel();
    found->second.push_back(entry);
  }
  std::vector<Tensor> sums;
  for (const auto& [stream, entries] : by_stream) {  // all streams work before the first one is waited for
    sums.push_back(Tensor::empty(*stream, DType::F64, {2}));
    call_optimise({.rule = OptimiserRule::SquaredGradients,
                   .numbers = {},
                   .tensors = entries,
                   .stream = *stream,
                   .sums = sums.back().data<double>()});
  }
  double total = 0;
  for (const Tensor& s : sums) total += s.to_doubles()[0];
  return std::sqrt(total);
}

}  // namespace flux2
