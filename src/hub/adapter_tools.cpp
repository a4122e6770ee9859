#include "hub/adapter_tools.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "hub/convert_plan.h"
#include "hub/recognise.h"
#include "hub/training_kind.h"
#include "weights/named_weights.h"
#include "weights/safetensors_writer.h"

namespace flux2 {

namespace {

constexpr int64_t kChunkElements = 4 << 20;  // merged at a time: 16 MB as f32

double norm_of(const HostMatrix& m) {
  double sum = 0;
  for (float v : m.values) sum += static_cast<double>(v) * v;
  return std::sqrt(sum);
}

double norm_of(const AdapterChange& change) {
  double sum = 0;
  std::vector<float> row(static_cast<size_t>(change.in()));
  for (int64_t i = 0; i < change.out(); ++i) {
    std::fill(row.begin(), row.end(), 0.0f);
    change.add_rows(i, i + 1, {}, change.in(), 1.0f, row.data());
    for (float v : row) sum += static_cast<double>(v) * v;
  }
  return std::sqrt(sum);
}

// ‖up · down‖² is the sum over pairs of columns of up and rows of down, which needs no product.
double norm_of_product(const HostMatrix& up, const HostMatrix& down) {
  double sum = 0;
  for (int64_t i = 0; i < down.rows; ++i)
    for (int64_t j = 0; j < down.rows; ++j) {
      double a = 0, b = 0;
      for (int64_t k = 0; k < down.columns; ++k) a += static_cast<double>(down.row(i)[k]) * down.row(j)[k];
      for (int64_t k = 0; k < up.rows; ++k) b += static_cast<double>(up.row(k)[i]) * up.row(k)[j];
      sum += a * b;
    }
  return std::sqrt(std::max(0.0, sum));
}

Tensor as_f32(const HostMatrix& m) { return Tensor::host_copy(m.values.data(), DType::F32, {m.rows, m.columns}); }

std::string architecture_of(const Flux2Config& config) {
  const std::string name = config.name();
  return name == "klein 4B"   ? "Flux.2-klein-4b/lora"
         : name == "klein 9B" ? "Flux.2-klein-9b/lora"
         : name == "dev"      ? "Flux.2-dev/lora"
                              : "Flux.2/lora";
}

std::string base_of(const Flux2Config& config) {
  const std::string name = config.name();
  return name == "klein 4B" ? "flux_2_klein_4b" : name == "klein 9B" ? "flux_2_klein_9b" : name == "dev" ? "flux_2_dev" : "flux2";
}

// Collects pairs under the names of a dialect and writes them.
class AdapterWriter {
 public:
  AdapterWriter(AdapterDialect dialect, const Flux2Config& config) : dialect_(dialect), config_(config) {}

  void add(const std::string& weight, const LowRankPair& pair) {
    const Shape shape{pair.up.rows, pair.down.columns};
    if (dialect_ != AdapterDialect::Peft) return add_pair(layer_of(weight), pair);
    for (const DiffusersTensor& d : to_diffusers(ModelPart::Transformer, weight, shape)) {
      LowRankPair piece{pair.down, HostMatrix(d.shape[0], pair.up.columns)};
      int64_t row = 0;
      for (const IndexRange& r : d.rows)
        for (int64_t i = r.begin; i < r.end; ++i) std::copy_n(pair.up.row(i), pair.up.columns, piece.up.row(row++));
      add_pair(layer_of(d.name), piece);
    }
  }

  bool empty() const { return tensors_.empty(); }

  void save(const std::filesystem::path& out, std::map<std::string, std::string> metadata) const {
    metadata["ss_base_model_version"] = base_of(config_);
    metadata["modelspec.architecture"] = architecture_of(config_);
    metadata["format"] = "pt";
    save_tensors(out, tensors_, metadata);
  }

 private:
  static std::string layer_of(const std::string& weight) {
    return weight.substr(0, weight.size() - std::string_view(".weight").size());
  }

  void add_pair(std::string layer, const LowRankPair& pair) {
    const bool kohya = dialect_ == AdapterDialect::Kohya;
    if (kohya) std::replace(layer.begin(), layer.end(), '.', '_');
    const std::string name = (kohya                              ? "lora_unet_"
                              : dialect_ == AdapterDialect::Peft ? "transformer."
                                                                 : "diffusion_model.") +
                             layer;
    tensors_.emplace_back(name + (kohya ? ".lora_down.weight" : ".lora_A.weight"), as_f32(pair.down));
    tensors_.emplace_back(name + (kohya ? ".lora_up.weight" : ".lora_B.weight"), as_f32(pair.up));
    const auto rank = static_cast<float>(pair.down.rows);
    if (kohya) tensors_.emplace_back(name + ".alpha", Tensor::host_copy(&rank, DType::F32, {}));
  }

  AdapterDialect dialect_;
  Flux2Config config_;
  std::vector<std::pair<std::string, Tensor>> tensors_;
};

std::vector<std::string> weights_of(const Adapter& adapter) {
  std::vector<std::string> names;
  for (const Adapter::Change& c : adapter.changes())
    if (names.empty() || names.back() != c.target.weight) names.push_back(c.target.weight);
  return names;
}

// Metadata about the training; metadata about tensor names is left out.
std::map<std::string, std::string> kept_metadata(const Adapter& adapter) {
  std::map<std::string, std::string> kept;
  for (const auto& [key, value] : adapter.file().source->metadata())
    if (key.starts_with("modelspec.") || (key.starts_with("ss_") && key != "ss_network_module")) kept.emplace(key, value);
  return kept;
}

}  // namespace

std::shared_ptr<const Adapter> open_adapter(const AdapterChoice& choice, const Flux2Config& config, const Log& log) {
  required_part(recognise(choice.path, log), ComponentKind::Adapter);
  const auto adapter = std::make_shared<Adapter>(read_adapter(choice.path, log), config, choice.layers);
  const auto& unmatched = adapter->unmatched();
  if (!unmatched.empty())
    log.warn("{}: {} layers are not in this model, the first is {}", choice.path.string(), unmatched.size(), unmatched[0]);
  if (choice.strength < -2 || choice.strength > 2)
    log.warn("{}: a strength of {} is unusual", choice.path.string(), choice.strength);
  return adapter;
}

AdapterReport check_adapter(const Adapter& adapter) {
  AdapterReport report{.unmatched = adapter.unmatched(),
                       .unknown_keys = adapter.file().unknown_keys,
                       .text_encoder_keys = adapter.file().text_encoder_keys};
  for (const Adapter::Change& c : adapter.changes()) {
    AdapterReport::Layer layer{c.target.weight, c.module.part("magnitude") ? "DoRA" : name_of(c.module.kind), c.module.rank(),
                               c.module.scale(), 0};
    try {
      const AdapterChange change(c.module);
      if (change.is_low_rank()) layer.norm = norm_of_product(change.up(), change.down());
      else if (!c.module.part("magnitude") && c.module.kind != AdapterKind::Oft) layer.norm = norm_of(change);
    } catch (const Error&) {
      report.not_finite.push_back(c.module.name);
    }
    report.layers.push_back(std::move(layer));
  }
  return report;
}

void merge_into_file(const NamedWeights& base, const std::vector<AdapterUse>& uses, const std::filesystem::path& out,
                     ThreadPool& threads, const std::string& training) {
  std::vector<std::string> changed;
  for (const AdapterUse& use : uses)
    for (const std::string& name : weights_of(*use.adapter)) changed.push_back(name);
  const auto is_changed = [&](const std::string& name) {
    return std::find(changed.begin(), changed.end(), name) != changed.end();
  };
  const auto type_of = [&](const std::string& name) {
    const DType t = base.dtype(name);
    return is_float(t) && !(is_changed(name) && t == DType::F16) ? t : DType::BF16;
  };
  std::vector<SafetensorsWriter::Declared> declared;
  for (const std::string& name : base.names()) declared.push_back({name, type_of(name), base.shape(name)});
  std::map<std::string, std::string> metadata = metadata_to_keep(base.source());
  metadata.erase("modelspec.hash_sha256");  // of the weights before
  metadata["format"] = "pt";
  if (!training.empty()) metadata[kTrainingKey] = training;
  SafetensorsWriter writer(out, std::move(declared), metadata);
  for (const auto& t : writer.tensors()) {
    const WeightRows base_rows(base, t.name);
    if (!is_changed(t.name) && base_rows.stores(t.dtype)) {
      const Tensor stored = base.open(t.name);
      writer.write(t.name, {stored.data<const std::byte>(), static_cast<size_t>(stored.bytes())});
    } else {
      const MergedRows merged([&](int64_t row, float* to) { base_rows.values(row, to); }, t.shape, t.name, uses);
      const int64_t chunk = std::max<int64_t>(1, kChunkElements / base_rows.width());
      std::vector<float> values;
      std::vector<bf16> rounded;
      for (int64_t r = 0; r < base_rows.count(); r += chunk) {
        const int64_t end = std::min(base_rows.count(), r + chunk);
        values.resize(static_cast<size_t>((end - r) * base_rows.width()));
        merged.rows(r, end, values.data(), threads);
        rounded.resize(values.size());
        std::transform(values.begin(), values.end(), rounded.begin(), to_bf16);
        writer.write(t.name, t.dtype == DType::F32 ? std::as_bytes(std::span(values)) : std::as_bytes(std::span(rounded)));
      }
    }
    base.forget_pages(t.name);
  }
  writer.commit();
}

const std::vector<std::string>& adapter_dialect_names() {
  static const std::vector<std::string> names = {"kohya", "peft", "bfl", "comfy"};
  return names;
}

AdapterDialect adapter_dialect_named(std::string_view name) {
  if (name == "kohya") return AdapterDialect::Kohya;
  if (name == "peft") return AdapterDialect::Peft;
  if (name == "bfl" || name == "comfy") return AdapterDialect::Bfl;
  fail(ErrorCode::InvalidArgument, "\"{}\" is not one of {}", name, fmt::join(adapter_dialect_names(), ", "));
}

void convert_adapter(const Adapter& adapter, const Flux2Config& config, AdapterDialect to, const std::filesystem::path& out) {
  AdapterWriter writer(to, config);
  std::map<std::string, Shape> shapes;
  Flux2Transformer(config).visit([&](const Parameter& p) { shapes[p.name] = p.shape; });
  for (const std::string& weight : weights_of(adapter)) {
    const Shape shape = shapes.at(weight);
    const auto pair = low_rank_change(adapter, weight, shape[0], shape[1]);
    if (!pair)
      throw Error(ErrorCode::Incompatible, fmt::format("{} is not changed by a LoRA, so it cannot be converted", weight),
                  Hint("{0} merges it into a model; {1} creates a LoRA from the difference",
                       {run_command("lora merge"), run_command("lora extract")}));
    writer.add(weight, *pair);
  }
  writer.save(out, kept_metadata(adapter));
}

double extract_adapter(const NamedWeights& tuned, const NamedWeights& base, int64_t rank, AdapterDialect to,
                       const std::filesystem::path& out, ThreadPool& threads) {
  check(rank >= 1 && rank <= 4096, "the rank {} is not between 1 and 4096", rank);
  const Flux2Config config = detect_flux2(base);
  if (detect_flux2(tuned) != config)
    fail(ErrorCode::Incompatible, "{} is {}, {} is {}: both models must have the same size", tuned.source().description(),
         detect_flux2(tuned).name(), base.source().description(), config.name());
  AdapterWriter writer(to, config);
  double error = 0, norm = 0;
  for (const std::string& name : base.names()) {
    if (base.shape(name).rank() != 2 || !name.ends_with(".weight")) continue;
    HostMatrix difference = weight_values(tuned, name);
    const HostMatrix before = weight_values(base, name);
    for (size_t i = 0; i < before.values.size(); ++i) difference.values[i] -= before.values[i];
    const double size = norm_of(difference);
    if (size == 0) continue;
    const LowRankPair pair = nearest_low_rank(difference, rank, threads);
    const HostMatrix kept = product(pair.up, pair.down, threads);
    for (size_t i = 0; i < kept.values.size(); ++i) difference.values[i] -= kept.values[i];
    error += std::pow(norm_of(difference), 2), norm += size * size;
    writer.add(name, pair);
  }
  if (writer.empty()) fail(ErrorCode::InvalidArgument, "the two models are the same: there is nothing to extract");
  writer.save(out, {});
  return std::sqrt(error / norm);
}

}  // namespace flux2
