#include "engine/model_cost.h"

namespace flux2 {

double step_flop(const Flux2Config& c, int64_t text_tokens, int64_t image_tokens, int64_t others) {
  const auto h = static_cast<double>(c.hidden), n = static_cast<double>(text_tokens + image_tokens);
  const auto blocks = static_cast<double>(c.double_blocks + c.single_blocks);
  const double in_and_out = 2 * 2 * static_cast<double>(image_tokens * c.channels) * h;
  const double vectors = 2 * ((c.guidance ? 2 : 1) * (256 * h + h * h) + 17 * h * h);  // time MLPs, modulations
  return blocks * 26 * n * h * h + step_attention_flop(c, text_tokens + image_tokens, others) + in_and_out + vectors;
}

double step_attention_flop(const Flux2Config& c, int64_t tokens, int64_t others) {
  return 4 * static_cast<double>((c.double_blocks + c.single_blocks) * c.hidden) * static_cast<double>(tokens) *
         static_cast<double>(tokens + others);
}

double lora_step_flop(const Flux2Config& c, int64_t text_tokens, int64_t image_tokens, bool checkpointed) {
  const auto h = static_cast<double>(c.hidden), n = static_cast<double>(text_tokens + image_tokens);
  const auto blocks = static_cast<double>(c.double_blocks + c.single_blocks);
  const double forwards = checkpointed ? 2 : 1;
  // Backwards a linear layer costs one product, attention five for the two of its forward.
  return blocks * ((forwards + 1) * 26 * n * h * h + (forwards + 2.5) * 4 * n * n * h);
}

double text_flop(const DecoderConfig& c, int64_t tokens) {
  const auto width = static_cast<double>(c.heads * c.head_dim), narrow = static_cast<double>(c.kv_heads * c.head_dim);
  const auto h = static_cast<double>(c.hidden), t = static_cast<double>(tokens);
  const double matrices = h * (2 * width + 2 * narrow + 3 * static_cast<double>(c.intermediate));
  return static_cast<double>(c.layers_needed()) * 2 * t * matrices + text_attention_flop(c, tokens);
}

double text_attention_flop(const DecoderConfig& c, int64_t tokens) {
  return 4 * static_cast<double>(c.layers_needed() * c.heads * c.head_dim) * static_cast<double>(tokens) *
         static_cast<double>(tokens);
}

namespace {

// Work on a picture whose number of pixels changes on the way.
class PictureCost {
 public:
  explicit PictureCost(double pixels) : pixels_(pixels) {}

  void conv(const Conv& c) {
    if (c.in == 0) return;  // not part of this network
    pixels_ /= c.stride * c.stride;
    flop += 2 * pixels_ * static_cast<double>(c.in * c.out) * c.size * c.size;
  }
  void block(const ResBlock& b) {
    conv(b.conv1);
    conv(b.conv2);
    conv(b.shortcut);
  }
  void mid(const MidBlock& m) {
    block(m.block_1);
    for (const Conv* c : {&m.attn_1.q, &m.attn_1.k, &m.attn_1.v, &m.attn_1.proj_out}) conv(*c);
    flop += 4 * pixels_ * pixels_ * static_cast<double>(m.attn_1.q.out);
    block(m.block_2);
  }
  void enlarge() { pixels_ *= 4; }

  double flop = 0;

 private:
  double pixels_;
};

}  // namespace

double decode_flop(const Vae& vae, int64_t width, int64_t height) {
  PictureCost cost(static_cast<double>(width * height) / 64);
  const Vae::Decoder& d = vae.decoder;
  cost.conv(d.post_quant_conv);
  cost.conv(d.conv_in);
  cost.mid(d.mid);
  for (size_t i = 4; i-- > 0;) {
    for (const ResBlock& b : d.up[i].blocks) cost.block(b);
    if (d.up[i].resample.in) cost.enlarge();
    cost.conv(d.up[i].resample);
  }
  cost.conv(d.conv_out);
  return cost.flop;
}

double encode_flop(const Vae& vae, int64_t width, int64_t height) {
  PictureCost cost(static_cast<double>(width * height));
  const Vae::Encoder& e = vae.encoder;
  cost.conv(e.conv_in);
  for (const Level& level : e.down) {
    for (const ResBlock& b : level.blocks) cost.block(b);
    cost.conv(level.resample);
  }
  cost.mid(e.mid);
  cost.conv(e.conv_out);
  cost.conv(e.quant_conv);
  return cost.flop;
}

}  // namespace flux2
