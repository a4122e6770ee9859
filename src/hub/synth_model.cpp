#include "hub/synth_model.h"

#include "base/error.h"

namespace flux2 {

namespace {

SynthModel tiny_model() {
  SynthModel m;
  m.name = "tiny";
  m.transformer = {.hidden = 256, .double_blocks = 1, .single_blocks = 2, .text_width = 192};
  m.vae = {.encoder_widths = {32, 64, 128, 128}, .decoder_widths = {32, 64, 128, 128}};
  m.text_encoder = DecoderConfig{.vocab = 512,
                                 .hidden = 64,
                                 .intermediate = 192,
                                 .heads = 4,
                                 .kv_heads = 2,
                                 .head_dim = 16,
                                 .layers = 7,
                                 .states = {2, 4, 6}};
  m.defaults = {.width = 128, .height = 128, .text_length = 64, .text_layers = {2, 4, 6}};
  return m;
}

// The same beside Mistral's text encoder and with the guidance input, as dev has them.
SynthModel dev_tiny_model() {
  SynthModel m = tiny_model();
  m.name = "dev-tiny";
  m.distilled = false;
  m.transformer.text_width = 480;
  m.transformer.guidance = true;
  m.text_encoder = mistral_small_config();
  m.text_encoder->vocab = 1512;
  m.text_encoder->hidden = 160;
  m.text_encoder->intermediate = 320;
  m.text_encoder->heads = 4;
  m.text_encoder->kv_heads = 2;
  m.text_encoder->head_dim = 32;
  m.text_encoder->layers = 6;
  m.text_encoder->states = {2, 4, 6};
  m.defaults.guidance = 4.0;
  m.defaults.guidance_kind = ModelDefaults::Embedded;
  m.defaults.system_message = "Describe the image that is asked for.";
  return m;
}

SynthModel published_model(const Variant& v) {
  SynthModel m;
  m.name = v.id;
  m.transformer = v.config;
  m.defaults = v.defaults;
  m.distilled = v.distilled;
  if (v.config == klein_4b_config()) m.text_encoder = DecoderConfig{};
  if (v.config == dev_config()) m.text_encoder = mistral_small_config();
  if (v.config == klein_9b_config()) m.text_encoder = DecoderConfig{.hidden = 4096, .intermediate = 12288};
  return m;
}

void check_consistent(const SynthModel& m) {
  const Flux2Config& t = m.transformer;
  check(t.hidden > 0 && t.hidden % Flux2Config::kHeadDim == 0, "width {} is not a multiple of the head width 128", t.hidden);
  check(t.double_blocks >= 0 && t.single_blocks >= 0, "{} double and {} single blocks", t.double_blocks, t.single_blocks);
  for (const auto& widths : {m.vae.encoder_widths, m.vae.decoder_widths})
    for (int64_t w : widths) check(w > 0 && w % 32 == 0, "autoencoder width {} is not a multiple of its 32 groups", w);
  if (!m.text_encoder) return;
  const DecoderConfig& q = *m.text_encoder;
  check(q.output_width() == t.text_width, "{} states of width {} do not make the transformer's text width {}", q.states.size(),
        q.hidden, t.text_width);
  check(q.layers_needed() <= q.layers, "the text encoder has {} layers, but the output of layer {} is needed", q.layers,
        q.layers_needed());
}

}  // namespace

SynthModel model_of(const SynthOptions& o) {
  SynthModel m;
  if (o.variant == "tiny") {
    m = tiny_model();
  } else if (o.variant == "dev-tiny") {
    m = dev_tiny_model();
  } else if (const auto variant = find_variant(o.variant)) {
    m = published_model(*variant);
  } else {
    fail(ErrorCode::InvalidArgument,
         "unknown model variant {}; use tiny, dev-tiny, a published id, clip-tiny or clip-vit-large-patch14", o.variant);
  }
  if (o.base && m.distilled) {
    m.distilled = false;
    m.defaults.steps = 50;
    m.defaults.guidance = 4.0;
  }
  if (o.transformer) m.transformer = *o.transformer;
  if (o.double_blocks) m.transformer.double_blocks = *o.double_blocks;
  if (o.single_blocks) m.transformer.single_blocks = *o.single_blocks;
  if (o.vae) m.vae = *o.vae;
  if (!o.name.empty()) m.name = o.name;
  if (o.defaults) m.defaults = *o.defaults;
  m.sizes = o.sizes;
  if (o.text_encoder) {
    m.text_encoder = o.text_encoder;
    m.defaults.text_layers = o.text_encoder->states;
  }
  if (o.needed_layers_only && m.text_encoder) m.text_encoder->layers = m.text_encoder->layers_needed();
  m.dtype = o.dtype;
  check_consistent(m);
  return m;
}

}  // namespace flux2
