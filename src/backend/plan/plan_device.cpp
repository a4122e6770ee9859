#include "backend/plan/plan_device.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tensor/tensor.h"

namespace flux2 {

namespace {

// Stands for any kernel.
struct Nothing {
  template <class Args>
  using Kernel = void (*)(const Args&);
  template <class Args>
  operator Kernel<Args>() const {
    return [](const Args&) {};
  }
};

// The table with every kernel replaced by one that does nothing; kernels that are missing stay missing, unless `all` is set.
Kernels muted(Kernels table, bool all = false) {
  const auto mute = [all](auto&... entries) { ((entries = all || entries ? decltype(+entries)(Nothing{}) : nullptr), ...); };
  auto& [fill, copy, unary, unary_grad, binary, scale, sum, linear, linear_grad_input, linear_grad_weight, layer_norm,
         layer_norm_grad, rms_norm, rms_norm_grad, group_norm, group_norm_grad, rope, attention, attention_grad, swiglu,
         swiglu_grad, embedding, embedding_grad, conv2d, conv2d_grad_input, conv2d_grad_weight, upsample, upsample_grad,
         conv2d_add, upsample_conv2d, modulated_norm, modulated_norm_grad, modulation_grad, gated_add, gated_add_norm,
         linear_swiglu, quantise, quantise_swiglu, norm_rope, norm_rope_grad, product_add, adapter_grad, torch_normal, optimise] =
      table;
  mute(fill, copy, unary, unary_grad, binary, scale, sum, linear, linear_grad_input, linear_grad_weight, layer_norm,
       layer_norm_grad, rms_norm, rms_norm_grad, group_norm, group_norm_grad, rope, attention, attention_grad, swiglu,
       swiglu_grad, embedding, embedding_grad, conv2d, conv2d_grad_input, conv2d_grad_weight, upsample, upsample_grad, conv2d_add,
       upsample_conv2d, modulated_norm, modulated_norm_grad, modulation_grad, gated_add, gated_add_norm, linear_swiglu, quantise,
       quantise_swiglu, norm_rope, norm_rope_grad, product_add, adapter_grad, torch_normal, optimise);
  return table;
}

// What a GPU's product takes for itself: a weight it cannot multiply directly is dequantised for that time.
void unpack_for_product(const Tensor& w, const Tensor& x, const Tensor& y) {
  if (is_float(w.dtype())) return;
  const bool in_eight_bits = y.dtype() == DType::BF16 && y.device().multiplies(w.dtype());
  if (!in_eight_bits) Tensor::like(y, is_float(x.dtype()) ? x.dtype() : y.dtype(), w.shape());
  else if (w.dtype() == DType::I8) Tensor::like(y, DType::I32, {rows_of_sums(y.dim(0), y.dim(1)), y.dim(1)});
}

// A product with the gradient of its result reads the weight in the dtype of the activations.
void unpack_for_gradient(const Tensor& w, const Tensor& like) {
  if (!is_float(w.dtype())) Tensor::like(like, w.shape());
}

// An e4m3 weight is transposed instead, and the gradient is quantised (backend/cuda/kernels/eight_bit_product.cpp).
void work_of_gradient(const LinearGradInputArgs& a) {
  if (a.w.dtype() != DType::F8_E4M3 || a.dy.dtype() != DType::BF16 || !a.dy.device().multiplies(a.w.dtype()))
    return unpack_for_gradient(a.w, a.dy);
  const Tensor quantised = Tensor::like(a.dy, a.w.dtype(), a.dy.shape()), turned = Tensor::like(a.dy, a.w.dtype(), a.w.shape());
}

// Attention's gradient adds up in F32: one value for each row of scores, and the queries' gradient unless all scores are kept
// (backend/cuda/cudnn_attention_grad.cpp).
void work_of_attention_grad(const AttentionGradArgs& a) {
  constexpr int64_t kScoreBytes = int64_t{300} << 20;
  const int64_t batch = a.q.dim(0), queries = a.q.dim(1), heads = a.q.dim(2);
  const Tensor row_sums = Tensor::like(a.q, DType::F32, {batch, heads, queries});
  const int64_t scores = 2 * batch * heads * queries * a.k.dim(1);
  if (scores <= kScoreBytes) Tensor::like(a.q, DType::U8, {scores});
  else Tensor::like(a.q, DType::F32, a.q.shape());
}

// Attention in e4m3 keeps its operands, padded to tiles, and the sums of divided tiles of as many blocks as a GPU has processors
// (backend/cuda/kernels/eight_bit_plan.cuh).
void work_of_attention(const AttentionArgs& a) {
  constexpr int64_t kWidth = 128, kQueries = 128, kKeys = 192, kPartBytes = 132 * int64_t{136 << 10};
  if (!a.eight_bits || !a.y.device().attends_in_8_bits() || a.q.dtype() != DType::BF16 || a.q.dim(3) != kWidth || a.causal ||
      a.key_mask || a.log_sum)
    return;
  const auto padded = [](int64_t n, int64_t tile) { return (n + tile - 1) / tile * tile; };
  const int64_t queries = a.q.dim(0) * a.q.dim(2) * padded(a.q.dim(1), kQueries),
                keys = a.k.dim(0) * a.k.dim(2) * padded(a.k.dim(1), kKeys);
  Tensor::like(a.y, DType::U8, {queries * (kWidth + 4) + 2 * keys * kWidth + keys / kKeys * 16 + kPartBytes});
}

// Shared with the memory it lent, which may outlive the stream.
struct Count {
  size_t used = 0, peak = 0;

  void take(size_t bytes) { peak = std::max(peak, used += bytes); }
};

class PlanGraph final : public Graph {
 public:
  PlanGraph(std::shared_ptr<Count> count, size_t bytes) : count_(std::move(count)), bytes_(bytes) { count_->take(bytes_); }
  ~PlanGraph() override { count_->used -= bytes_; }
  void replay() override {}

 private:
  std::shared_ptr<Count> count_;
  size_t bytes_;
};

class PlanStream final : public Stream {
 public:
  using Stream::Stream;

  std::shared_ptr<void> allocate(size_t bytes) override {
    const size_t taken = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    count_->take(taken);
    // An address that must not be read; aligned like real ones.
    return {reinterpret_cast<void*>(kAlignment), [count = count_, taken](void*) { count->used -= taken; }};
  }
  void upload(void*, const void*, size_t) override {}
  void download(void* host, const void*, size_t bytes) override { std::memset(host, 0, bytes); }
  void wait() override {}

  // A graph keeps the memory its work needed.
  std::unique_ptr<Graph> capture(const std::function<void()>& work) override {
    const size_t before = count_->used, peak = std::exchange(count_->peak, before);
    work();
    const size_t inside = count_->peak - before;
    count_->peak = std::max(count_->peak, peak);
    return std::make_unique<PlanGraph>(count_, inside);
  }
  size_t peak_bytes() const override { return count_->peak; }
  size_t used_bytes() const override { return count_->used; }
  size_t restart_peak() { return std::exchange(count_->peak, count_->used); }

 private:
  static constexpr size_t kAlignment = 512;
  std::shared_ptr<Count> count_ = std::make_shared<Count>();
};

class PlanDevice final : public Device {
 public:
  explicit PlanDevice(const Device& target)
      : name_(target.name()),
        description_(target.description()),
        host_(target.is_host()),
        graphs_(target.prefers_graphs()),
        memory_(target.memory()),
        multiplies_f8_(target.multiplies(DType::F8_E4M3)),
        multiplies_i8_(target.multiplies(DType::I8)),
        attends_in_8_bits_(target.attends_in_8_bits()) {
    kernels_ = muted(target.kernels());
    if (!host_) count_work();
  }
  // A GPU that need not be there, with all kernels and 8-bit products.
  explicit PlanDevice(const MemorySize& memory)
      : name_("cuda"),
        description_("a GPU that is not here"),
        host_(false),
        graphs_(true),
        memory_(memory),
        multiplies_f8_(true),
        multiplies_i8_(true),
        attends_in_8_bits_(true) {
    kernels_ = muted({}, true);
    count_work();
  }
  std::string name() const override { return name_; }
  std::string description() const override { return description_; }
  bool is_host() const override { return host_; }
  bool prefers_graphs() const override { return graphs_; }
  bool multiplies(DType dtype) const override {
    return (dtype == DType::F8_E4M3 && multiplies_f8_) || (dtype == DType::I8 && multiplies_i8_);
  }
  bool attends_in_8_bits() const override { return attends_in_8_bits_; }
  MemorySize memory() const override { return memory_; }
  std::shared_ptr<Stream> open_stream() override { return std::make_shared<PlanStream>(shared_from_this()); }

 private:
  // What a GPU's kernels take for themselves.
  void count_work() {
    kernels_.linear = [](const LinearArgs& a) { unpack_for_product(a.w, a.x, a.y); };
    kernels_.attention = [](const AttentionArgs& a) { work_of_attention(a); };
    if (kernels_.linear_swiglu) kernels_.linear_swiglu = [](const LinearSwigluArgs& a) { unpack_for_product(a.w, a.x, a.y); };
    if (kernels_.linear_grad_input) kernels_.linear_grad_input = [](const LinearGradInputArgs& a) { work_of_gradient(a); };
    if (kernels_.product_add)
      kernels_.product_add = [](const ProductAddArgs& a) {
        a.transposed ? unpack_for_product(a.w, a.x, a.y) : work_of_gradient({a.x, a.w, a.y});
      };
    if (kernels_.attention_grad) kernels_.attention_grad = [](const AttentionGradArgs& a) { work_of_attention_grad(a); };
  }

  std::string name_, description_;
  bool host_, graphs_;
  MemorySize memory_;
  bool multiplies_f8_, multiplies_i8_, attends_in_8_bits_;
};

}  // namespace

std::shared_ptr<Device> open_plan_device(const Device& target) { return std::make_shared<PlanDevice>(target); }

std::shared_ptr<Device> open_plan_gpu(const MemorySize& memory) { return std::make_shared<PlanDevice>(memory); }

size_t restart_peak(Stream& stream) { return static_cast<PlanStream&>(stream).restart_peak(); }

}  // namespace flux2
