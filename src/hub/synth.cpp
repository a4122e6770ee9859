#include "hub/synth.h"

#include <algorithm>
#include <map>
#include <vector>

#include "base/error.h"
#include "hub/component_config.h"
#include "hub/folder_layout.h"
#include "hub/synth_files.h"
#include "hub/synth_model.h"
#include "hub/synth_tekken.h"
#include "hub/synth_values.h"
#include "model/flux2_transformer.h"
#include "model/text_encoder.h"
#include "model/vae.h"
#include "model/vision_tower.h"
#include "weights/names.h"
#include "weights/safetensors_writer.h"

namespace flux2 {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kChunkBytes = 16 << 20;

// A tensor to invent, under its canonical name.
struct Invented {
  std::string name;
  Shape shape;
  ParameterKind kind;
  int64_t zero_row = -1;  // a row of zeros
};

// What a stored tensor is made of.
struct Piece {
  const Invented* canonical;
  std::vector<IndexRange> rows;
};

struct PartFile {
  fs::path path;
  ModelPart part;
  std::vector<Invented> tensors;
  std::string prefix = {};  // before the names of language models inside larger ones
  std::map<std::string, std::string> metadata = {};
};

template <class Model>
std::vector<Invented> list_tensors(Model model) {
  std::vector<Invented> list;
  model.visit([&](const Parameter& p) { list.push_back({p.name, p.shape, p.kind}); });
  return list;
}

// Qwen3's embeddings are declared tied to the output head, so no head is written; Mistral has its own.
std::vector<Invented> text_encoder_tensors(DecoderConfig config) {
  constexpr int64_t kMistralPad = 11;  // its embedding is zero in the published model
  const bool mistral = config.family == DecoderFamily::Mistral;
  config.states = {static_cast<int>(config.layers)};  // so that every layer is listed
  auto list = list_tensors(TextEncoder(config));
  list.push_back({"model.norm.weight", {config.hidden}, ParameterKind::Vector});
  if (mistral) {
    list.front().zero_row = kMistralPad;
    list.push_back({"lm_head.weight", {config.vocab, config.hidden}, ParameterKind::Matrix});
  }
  return list;
}

class ModelWriter {
 public:
  ModelWriter(const SynthOptions& options, const std::function<void(const SynthProgress&)>& progress)
      : options_(options), progress_(progress), pool_(0) {}

  void write(const std::vector<PartFile>& components) {
    for (const PartFile& c : components)
      for (const Invented& t : c.tensors) state_.total += static_cast<uint64_t>(bytes_for(dtype_of(t), t.shape.numel()));
    for (const PartFile& c : components) write(c);
  }

 private:
  // Statistics stay exact: rounding them shifts every latent.
  DType dtype_of(const Invented& t) const { return t.kind == ParameterKind::Statistic ? DType::F32 : options_.dtype; }

  void write(const PartFile& component) {
    std::map<std::string, Piece> pieces;
    std::vector<SafetensorsWriter::Declared> declared;
    for (const Invented& t : component.tensors) {
      std::vector<DiffusersTensor> stored = {{t.name, t.shape, {{0, t.shape[0]}}}};
      if (options_.layout == SynthOptions::Layout::Diffusers) stored = to_diffusers(component.part, t.name, t.shape);
      for (DiffusersTensor& s : stored) {
        if (!t.name.starts_with("vision_tower.") && !t.name.starts_with("multi_modal_projector."))
          s.name = component.prefix + s.name;
        declared.push_back({s.name, dtype_of(t), s.shape});
        pieces[s.name] = {&t, std::move(s.rows)};
      }
    }
    // PyTorch counts the batches that a norm has seen; strict loaders require this tensor.
    constexpr const char* kCounter = "bn.num_batches_tracked";
    if (component.part == ModelPart::Autoencoder) declared.push_back({kCounter, DType::I64, {}});

    std::map<std::string, std::string> metadata = component.metadata;
    metadata.emplace("format", "pt");
    SafetensorsWriter writer(component.path, declared, metadata);
    state_.file = component.path.string();
    for (const auto& d : writer.tensors()) {
      if (d.name == kCounter) writer.write(d.name, std::vector<std::byte>(sizeof(int64_t)));
      else write(writer, d, pieces.at(d.name));
    }
    writer.commit();
  }

  void write(SafetensorsWriter& writer, const SafetensorsWriter::Declared& d, const Piece& piece) {
    const Invented& t = *piece.canonical;
    const SynthValues values(options_.seed, t.name, sane_values(t.name, t.shape, t.kind), d.dtype);
    const int64_t row = t.shape.numel() / t.shape[0], width = bytes_for(d.dtype, 1), chunk = kChunkBytes / width;
    for (const IndexRange& rows : piece.rows)
      for (int64_t at = rows.begin * row; at < rows.end * row;) {
        const int64_t n = std::min(chunk, rows.end * row - at);
        buffer_.resize(static_cast<size_t>(n * width));
        values.fill(at, buffer_, pool_);
        if (t.zero_row >= 0) clear(t.zero_row * row - at, row, width);
        writer.write(d.name, buffer_);
        at += n;
        state_.bytes += buffer_.size();
        if (progress_) progress_(state_);
      }
  }

  // Zeros for `count` elements of `width` bytes from `begin` on, as far as they lie in the buffer.
  void clear(int64_t begin, int64_t count, int64_t width) {
    const auto size = static_cast<int64_t>(buffer_.size());
    const int64_t first = std::clamp<int64_t>(begin * width, 0, size),
                  last = std::clamp<int64_t>((begin + count) * width, 0, size);
    std::fill(buffer_.begin() + first, buffer_.begin() + last, std::byte{0});
  }

  const SynthOptions& options_;
  const std::function<void(const SynthProgress&)>& progress_;
  ThreadPool pool_;
  SynthProgress state_;
  std::vector<std::byte> buffer_;
};

// "flux-2-klein-4b.safetensors", as the published files are called.
std::string single_file_name(const SynthModel& m) {
  const std::string name = m.name.starts_with("flux.2-") ? m.name.substr(7) : m.name;
  return fmt::format("flux-2-{}.safetensors", name);
}

void copy_tokenizer(const fs::path& from, const fs::path& to) {
  check(holds_tokenizer(from), "{} does not contain a tokenizer to copy", from.string());
  std::error_code failed;
  fs::copy(from, to, fs::copy_options::overwrite_existing | fs::copy_options::recursive, failed);
  if (failed) fail(ErrorCode::CannotWrite, "cannot copy tokenizer {} to {}: {}", from.string(), to.string(), failed.message());
}

}  // namespace

void synthesise_model(const SynthOptions& options, const std::function<void(const SynthProgress&)>& progress, const Log& log) {
  check(!options.out.empty(), "a folder for the model is needed");
  const SynthModel model = model_of(options);
  const bool diffusers = options.layout == SynthOptions::Layout::Diffusers;

  std::vector<PartFile> components = {
      {diffusers ? options.out / "transformer/diffusion_pytorch_model.safetensors" : options.out / single_file_name(model),
       ModelPart::Transformer, list_tensors(Flux2Transformer(model.transformer))},
      {diffusers ? options.out / "vae/diffusion_pytorch_model.safetensors" : options.out / "ae.safetensors",
       ModelPart::Autoencoder,
       list_tensors(Vae(model.vae)),
       {},
       vae_metadata(model.vae)}};
  if (model.text_encoder) {
    const DecoderConfig& text = *model.text_encoder;
    PartFile file{options.out / "text_encoder/model.safetensors", ModelPart::TextEncoder, text_encoder_tensors(text)};
    if (text.family == DecoderFamily::Mistral) {
      file.prefix = "language_model.";
      for (Invented& t : list_tensors(VisionTower(vision_config_for(text)))) file.tensors.push_back(std::move(t));
    }
    components.push_back(std::move(file));
  }

  ModelWriter(options, progress).write(components);
  if (model.text_encoder) {
    write_text_encoder_config(options.out, model);
    if (!options.tokenizer.empty()) copy_tokenizer(options.tokenizer, options.out / "tokenizer");
    else if (model.text_encoder->family == DecoderFamily::Mistral) write_small_tekken(options.out / "tokenizer", model);
    else write_small_tokenizer(options.out / "tokenizer", model.text_encoder->vocab);
  }
  if (diffusers) write_diffusers_configs(options.out, model);
  else write_own_index(options.out, model);
  log.info("wrote a model with random weights to {}", options.out.string());
}

}  // namespace flux2
