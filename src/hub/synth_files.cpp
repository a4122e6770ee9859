#include "hub/synth_files.h"

#include <iterator>
#include <string_view>
#include <vector>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/json.h"
#include "hub/component_config.h"
#include "text/byte_symbols.h"
#include "text/pretokenize.h"

namespace flux2 {

namespace {

namespace fs = std::filesystem;

}  // namespace

void write_synth_json(const fs::path& path, const Json& json) {
  const std::string text = json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  AtomicFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

namespace {

std::string byte_symbol(int byte) {
  std::string symbol;
  append_byte_symbol(symbol, static_cast<unsigned char>(byte));
  return symbol;
}

// Frequent English pairs; each side is a byte symbol or an earlier merge. Ġ is the space.
constexpr std::pair<std::string_view, std::string_view> kMerges[] = {
    {"Ġ", "a"}, {"Ġ", "t"}, {"h", "e"}, {"i", "n"},  {"Ġt", "he"}, {"r", "e"},   {"o", "n"},
    {"e", "r"}, {"a", "t"}, {"Ġ", "o"}, {"Ġo", "n"}, {"n", "d"},   {"Ġa", "nd"}, {"Ġ", "in"},
};

struct TemplateToken {
  const char* content;
  bool special;
};
constexpr TemplateToken kTemplateTokens[] = {
    {"<|endoftext|>", true}, {"<|im_start|>", true}, {"<|im_end|>", true}, {"<think>", false}, {"</think>", false}};

static_assert(std::size(kTemplateTokens) == kTemplateTokenCount);

// The same conversation that our own prompt template renders.
constexpr const char* kChatTemplate =
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}";

}  // namespace

void write_own_index(const fs::path& folder, const SynthModel& m) {
  Json flux2 = {{"text_length", m.defaults.text_length},
                {"text_layers", m.defaults.text_layers},
                {"steps", m.defaults.steps},
                {"guidance", m.defaults.guidance},
                {"width", m.defaults.width},
                {"height", m.defaults.height}};
  if (!m.defaults.system_message.empty()) flux2["system_message"] = m.defaults.system_message;
  for (const auto& [width, height] : m.sizes) flux2["sizes"].push_back({width, height});
  write_synth_json(folder / "model_index.json", {{"name", m.name}, {"is_distilled", m.distilled}, {"flux2", flux2}});
}

void write_text_encoder_config(const fs::path& folder, const SynthModel& m) {
  write_synth_json(folder / "text_encoder" / "config.json", text_encoder_config(*m.text_encoder, m.dtype));
}

void write_diffusers_configs(const fs::path& folder, const SynthModel& m) {
  const Flux2Config& t = m.transformer;
  const bool dev = t.guidance;
  const ModelDefaults& d = m.defaults;
  Json index = {{"_class_name", dev ? "Flux2Pipeline" : "Flux2KleinPipeline"},
                {"_diffusers_version", "0.37.0"},
                {"scheduler", {"diffusers", "FlowMatchEulerDiscreteScheduler"}},
                {"transformer", {"diffusers", "Flux2Transformer2DModel"}},
                {"vae", {"diffusers", "AutoencoderKLFlux2"}}};
  if (dev) {
    index["text_encoder"] = {"transformers", "Mistral3ForConditionalGeneration"};
    index["tokenizer"] = {"transformers", "PixtralProcessor"};
  } else if (m.text_encoder) {
    index["text_encoder"] = {"transformers", "Qwen3ForCausalLM"};
    index["tokenizer"] = {"transformers", "Qwen2TokenizerFast"};
    index["is_distilled"] = m.distilled;
  }
  // Values that diffusers expects as arguments. Published models use its defaults; a small model must state them.
  if (d.text_layers != ModelDefaults{}.text_layers || d.text_length != ModelDefaults{}.text_length) {
    index["name"] = m.name;
    index["flux2"] = {{"text_length", d.text_length},
                      {"text_layers", d.text_layers},
                      {"steps", d.steps},
                      {"guidance", d.guidance},
                      {"width", d.width},
                      {"height", d.height}};
    if (!d.system_message.empty()) index["flux2"]["system_message"] = d.system_message;
  }
  write_synth_json(folder / "model_index.json", index);

  write_synth_json(folder / "transformer" / "config.json", transformer_config(t));
  write_synth_json(folder / "vae" / "config.json", autoencoder_config(m.vae));
  write_synth_json(folder / "scheduler" / "scheduler_config.json", {{"_class_name", "FlowMatchEulerDiscreteScheduler"},
                                                                    {"base_image_seq_len", 256},
                                                                    {"base_shift", 0.5},
                                                                    {"max_image_seq_len", 4096},
                                                                    {"max_shift", 1.15},
                                                                    {"num_train_timesteps", 1000},
                                                                    {"shift", 3.0},
                                                                    {"time_shift_type", "exponential"},
                                                                    {"use_dynamic_shifting", true}});
}

int64_t write_learnt_tokenizer(const fs::path& folder, const LearntBpe& learnt) {
  Json tokens = Json::object(), merges = Json::array(), added = Json::array();
  int64_t next = 0;
  for (const std::string& token : learnt.vocabulary) tokens[token] = next++;
  for (const auto& [left, right] : learnt.merges) merges.push_back({left, right});
  for (const TemplateToken& token : kTemplateTokens)
    added.push_back({{"id", next++},
                     {"content", token.content},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", token.special}});

  const Json split = {
      {"type", "Split"}, {"pattern", {{"Regex", kQwenSplitPattern}}}, {"behavior", "Isolated"}, {"invert", false}};
  const Json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  write_synth_json(folder / "tokenizer.json",
                   {{"version", "1.0"},
                    {"truncation", nullptr},
                    {"padding", nullptr},
                    {"added_tokens", added},
                    {"normalizer", {{"type", "NFC"}}},
                    {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", Json::array({split, byte_level})}}},
                    {"post_processor", nullptr},
                    {"decoder", byte_level},
                    {"model",
                     {{"type", "BPE"},
                      {"dropout", nullptr},
                      {"unk_token", nullptr},
                      {"continuing_subword_prefix", ""},
                      {"end_of_word_suffix", ""},
                      {"fuse_unk", false},
                      {"byte_fallback", false},
                      {"vocab", tokens},
                      {"merges", merges}}}});
  write_synth_json(folder / "tokenizer_config.json", {{"tokenizer_class", "Qwen2Tokenizer"},
                                                      {"pad_token", "<|endoftext|>"},
                                                      {"eos_token", "<|im_end|>"},
                                                      {"model_max_length", 131072},
                                                      {"add_bos_token", false},
                                                      {"clean_up_tokenization_spaces", false},
                                                      {"chat_template", kChatTemplate}});
  return next;
}

void write_small_tokenizer(const fs::path& folder, int64_t vocab) {
  LearntBpe small;
  for (int byte = 0; byte < 256; ++byte) small.vocabulary.push_back(byte_symbol(byte));
  for (const auto& [left, right] : kMerges) {
    small.merges.emplace_back(left, right);
    small.vocabulary.push_back(std::string(left) + std::string(right));
  }
  const int64_t tokens = static_cast<int64_t>(small.vocabulary.size()) + kTemplateTokenCount;
  check(tokens <= vocab, "the small tokenizer has {} tokens, but the text encoder has room for only {}", tokens, vocab);
  write_learnt_tokenizer(folder, small);
}

}  // namespace flux2
