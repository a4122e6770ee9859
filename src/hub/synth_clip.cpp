#include "hub/synth_clip.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/thread_pool.h"
#include "hub/synth_files.h"
#include "hub/synth_values.h"
#include "weights/safetensors_writer.h"

namespace flux2 {

namespace {

namespace fs = std::filesystem;

// As CLIPPreTrainedModel._init_weights() of transformers.
ValueRange initial_values(const Parameter& p, const ClipConfig& c) {
  const auto ends = [&](const char* tail) { return p.name.ends_with(tail); };
  const double hidden = 1 / std::sqrt(static_cast<double>(c.hidden));
  const double inner = hidden / std::sqrt(2.0 * static_cast<double>(c.layers));
  const auto normal = [](double deviation) { return ValueRange{0.0f, static_cast<float>(deviation)}; };
  if (ends("class_embedding")) return normal(hidden);
  if (ends("patch_embedding.weight") || ends("position_embedding.weight")) return normal(0.02);
  if (ends(".bias")) return normal(0);
  if (p.kind == ParameterKind::Vector) return {1.0f, 0.0f};  // norms
  if (ends("fc1.weight")) return normal(hidden / std::sqrt(2.0));
  if (ends("out_proj.weight") || ends("visual_projection.weight")) return normal(hidden);
  return normal(inner);  // q, k, v and fc2
}

// The shortest decimal number that is read as this float.
double as_written(float value) { return std::strtod(fmt::format("{}", value).c_str(), nullptr); }

Json colours_json(const std::array<float, 3>& values) {
  return {as_written(values[0]), as_written(values[1]), as_written(values[2])};
}

void write_configs(const fs::path& folder, const ClipConfig& c, DType dtype) {
  write_synth_json(folder / "config.json", {{"architectures", {"CLIPVisionModelWithProjection"}},
                                            {"model_type", "clip_vision_model"},
                                            {"hidden_size", c.hidden},
                                            {"intermediate_size", c.intermediate},
                                            {"num_hidden_layers", c.layers},
                                            {"num_attention_heads", c.heads},
                                            {"num_channels", 3},
                                            {"image_size", c.image},
                                            {"patch_size", c.patch},
                                            {"projection_dim", c.projection},
                                            {"hidden_act", c.quick_gelu ? "quick_gelu" : "gelu"},
                                            {"layer_norm_eps", as_written(c.eps)},
                                            {"attention_dropout", 0.0},
                                            {"initializer_factor", 1.0},
                                            {"initializer_range", 0.02},
                                            {"dtype", dtype == DType::BF16 ? "bfloat16" : "float32"}});
  write_synth_json(folder / "preprocessor_config.json", {{"image_processor_type", "CLIPImageProcessor"},
                                                         {"do_convert_rgb", true},
                                                         {"do_resize", true},
                                                         {"size", {{"shortest_edge", c.image}}},
                                                         {"resample", 3},
                                                         {"do_center_crop", true},
                                                         {"crop_size", {{"height", c.image}, {"width", c.image}}},
                                                         {"do_rescale", true},
                                                         {"rescale_factor", 1.0 / 255.0},
                                                         {"do_normalize", true},
                                                         {"image_mean", colours_json(c.mean)},
                                                         {"image_std", colours_json(c.deviation)}});
}

}  // namespace

std::optional<ClipConfig> synthetic_clip(std::string_view name) {
  if (name == "clip-vit-large-patch14") return ClipConfig{};
  if (name != "clip-tiny") return std::nullopt;
  ClipConfig c;
  c.hidden = 64, c.intermediate = 128, c.layers = 2, c.heads = 2, c.patch = 32, c.projection = 48;
  return c;
}

void write_random_clip(const fs::path& folder, const ClipConfig& config, const RandomClipOptions& options) {
  check(!folder.empty(), "a folder for the image encoder is needed");
  check(config.heads > 0 && config.hidden % config.heads == 0, "a width of {} cannot be divided into {} heads", config.hidden,
        config.heads);
  check(config.patch > 0 && config.image % config.patch == 0, "an image of {} pixels cannot be divided into patches of {}",
        config.image, config.patch);
  std::vector<SafetensorsWriter::Declared> declared;
  std::map<std::string, ValueRange> ranges;
  SynthProgress state{.file = (folder / "model.safetensors").string()};
  ClipVision network(config);
  network.visit([&](const Parameter& p) {
    declared.push_back({p.name, options.dtype, p.shape});
    ranges[p.name] = initial_values(p, config);
    state.total += static_cast<uint64_t>(bytes_for(options.dtype, p.shape.numel()));
  });
  SafetensorsWriter writer(folder / "model.safetensors", declared, {{"format", "pt"}});
  ThreadPool pool(0);
  std::vector<std::byte> buffer;
  const int64_t width = bytes_for(options.dtype, 1), chunk = (int64_t{16} << 20) / width;
  for (const SafetensorsWriter::Declared& d : writer.tensors()) {
    const SynthValues values(options.seed, d.name, ranges.at(d.name), d.dtype);
    const int64_t count = d.shape.numel();
    for (int64_t at = 0; at < count; at += chunk) {
      buffer.resize(static_cast<size_t>(std::min(chunk, count - at) * width));
      values.fill(at, buffer, pool);
      writer.write(d.name, buffer);
      state.bytes += buffer.size();
      if (options.progress) options.progress(state);
    }
  }
  writer.commit();
  write_configs(folder, config, options.dtype);
}

}  // namespace flux2
