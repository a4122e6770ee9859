#include "hub/synth_tekken.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/base64.h"
#include "base/error.h"
#include "hub/component_config.h"
#include "hub/synth_files.h"
#include "text/byte_symbols.h"
#include "text/pretokenize.h"
#include "text/tekken_file.h"

namespace flux2 {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kSpecialIds = 1000;
constexpr size_t kWords = 256;

// Words of the kind that prompts have.
constexpr std::string_view kText =
    "a photo of a red fox in the snow, a painting of an old house by the sea at night, the portrait of a woman with a green "
    "hat in front of a window, two cats on a wooden table, a bowl of fruit in the morning light, a city street in the rain with "
    "people under umbrellas, mountains behind a lake with a small boat, a close view of a flower with water on its leaves, an "
    "astronaut who reads a book on the moon, a drawing of a castle on a hill above the clouds, the sign says open, describe the "
    "image that is asked for, in the style of a film from the seventies, soft shadows, sharp details, high contrast, warm "
    "colours, black and white, wide angle, long exposure, golden hour, a dog runs along the beach, children play in a garden";

// The bytes, then the most frequent pair of neighbours again and again; the first of equals in the order of their bytes.
std::vector<std::string> learn_words() {
  std::vector<std::string> tokens;
  for (int b = 0; b < 256; ++b) tokens.emplace_back(1, static_cast<char>(b));
  std::vector<std::vector<std::string>> pieces;
  for (std::string_view piece : pretokenize(kText, SplitRule::Tekken)) {
    pieces.emplace_back();
    for (char c : piece) pieces.back().emplace_back(1, c);
  }
  while (tokens.size() < 256 + kWords) {
    std::map<std::pair<std::string, std::string>, int> counts;
    for (const auto& piece : pieces)
      for (size_t i = 0; i + 1 < piece.size(); ++i) ++counts[{piece[i], piece[i + 1]}];
    check(!counts.empty(), "the text is too short for {} words", kWords);
    const auto best =
        std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.second < b.second; })->first;
    const std::string joined = best.first + best.second;
    for (auto& piece : pieces)
      for (size_t i = 0; i + 1 < piece.size(); ++i)
        if (piece[i] == best.first && piece[i + 1] == best.second) {
          piece[i] = joined;
          piece.erase(piece.begin() + static_cast<ptrdiff_t>(i) + 1);
        }
    if (std::find(tokens.begin(), tokens.end(), joined) == tokens.end()) tokens.push_back(joined);
  }
  return tokens;
}

std::string symbols_of(std::string_view bytes) {
  std::string symbols;
  for (char c : bytes) append_byte_symbol(symbols, static_cast<unsigned char>(c));
  return symbols;
}

Json tekken_json(const std::vector<std::string>& tokens) {
  Json vocabulary = Json::array(), specials = Json::array();
  for (size_t i = 0; i < tokens.size(); ++i)
    vocabulary.push_back(
        {{"rank", i}, {"token_bytes", base64_encode(std::as_bytes(std::span(tokens[i])))}, {"token_str", nullptr}});
  for (int64_t id = 0; id < kSpecialIds; ++id)
    specials.push_back({{"rank", id}, {"token_str", tekken_special_token(id)}, {"is_control", true}});
  return {{"config",
           {{"pattern", kTekkenSplitPattern},
            {"num_vocab_tokens", tokens.size()},
            {"default_vocab_size", kSpecialIds + std::ssize(tokens)},
            {"default_num_special_tokens", kSpecialIds},
            {"version", "v7"}}},
          {"vocab", vocabulary},
          {"special_tokens", specials}};
}

// Merges as the published conversion lists them: for each token in the order of ranks every split into two tokens, by their
// ranks.
Json merges_of(const std::vector<std::string>& tokens) {
  std::map<std::string, size_t> ranks;
  for (size_t i = 0; i < tokens.size(); ++i) ranks[tokens[i]] = i;
  Json merges = Json::array();
  for (const std::string& token : tokens) {
    std::vector<std::pair<size_t, size_t>> splits;
    for (size_t at = 1; at < token.size(); ++at) {
      const auto left = ranks.find(token.substr(0, at)), right = ranks.find(token.substr(at));
      if (left != ranks.end() && right != ranks.end()) splits.emplace_back(left->second, right->second);
    }
    std::sort(splits.begin(), splits.end());
    for (const auto& [left, right] : splits) merges.push_back({symbols_of(tokens[left]), symbols_of(tokens[right])});
  }
  return merges;
}

Json tokenizer_json(const std::vector<std::string>& tokens) {
  Json vocabulary = Json::object(), added = Json::array();
  for (int64_t id = 0; id < kSpecialIds; ++id) {
    vocabulary[tekken_special_token(id)] = id;
    added.push_back({{"id", id},
                     {"content", tekken_special_token(id)},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  for (size_t i = 0; i < tokens.size(); ++i) vocabulary[symbols_of(tokens[i])] = kSpecialIds + static_cast<int64_t>(i);
  const Json split = {
      {"type", "Split"}, {"pattern", {{"Regex", kMistralSplitPattern}}}, {"behavior", "Isolated"}, {"invert", false}};
  const Json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  const Json bos = {{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}};
  const auto sequence = [](const char* name) { return Json{{"Sequence", {{"id", name}, {"type_id", name[0] - 'A'}}}}; };
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", Json::array({split, byte_level})}}},
          {"post_processor",
           {{"type", "TemplateProcessing"},
            {"single", Json::array({bos, sequence("A")})},
            {"pair", Json::array({bos, sequence("A"), bos, sequence("B")})},
            {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {1}}, {"tokens", {"<s>"}}}}}}}},
          {"decoder", byte_level},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", true},
            {"vocab", vocabulary},
            {"merges", merges_of(tokens)}}}};
}

// The conversation that our own prompt template renders.
constexpr const char* kMistralChat =
    "{{ bos_token }}{% for message in messages %}"
    "{% set text = message['content'] if message['content'] is string else message['content'][0]['text'] %}"
    "{% if message['role'] == 'system' %}[SYSTEM_PROMPT]{{ text }}[/SYSTEM_PROMPT]"
    "{% elif message['role'] == 'user' %}[INST]{{ text }}[/INST]"
    "{% else %}{{ text }}{{ eos_token }}{% endif %}{% endfor %}";

}  // namespace

void write_small_tekken(const fs::path& folder, const SynthModel& model) {
  const std::vector<std::string> tokens = learn_words();
  const int64_t needed = kSpecialIds + std::ssize(tokens);
  check(needed <= model.text_encoder->vocab, "the small tokenizer has {} tokens, but the text encoder has room for only {}",
        needed, model.text_encoder->vocab);
  const VisionConfig vision = vision_config_for(*model.text_encoder);
  write_synth_json(folder / "tekken.json", tekken_json(tokens));
  write_synth_json(folder / "tokenizer.json", tokenizer_json(tokens));
  write_synth_json(folder / "tokenizer_config.json", {{"tokenizer_class", "LlamaTokenizerFast"},
                                                      {"bos_token", "<s>"},
                                                      {"eos_token", "</s>"},
                                                      {"unk_token", "<unk>"},
                                                      {"pad_token", "<pad>"},
                                                      {"padding_side", "left"},
                                                      {"add_bos_token", true},
                                                      {"add_eos_token", false},
                                                      {"legacy", true},
                                                      {"model_max_length", 131072},
                                                      {"clean_up_tokenization_spaces", false},
                                                      {"processor_class", "PixtralProcessor"}});
  write_synth_json(folder / "chat_template.json", {{"chat_template", kMistralChat}});
  write_synth_json(folder / "processor_config.json", {{"image_break_token", "[IMG_BREAK]"},
                                                      {"image_end_token", "[IMG_END]"},
                                                      {"image_token", "[IMG]"},
                                                      {"patch_size", vision.patch},
                                                      {"processor_class", "PixtralProcessor"},
                                                      {"spatial_merge_size", vision.merge}});
  write_synth_json(folder / "preprocessor_config.json", {{"image_processor_type", "PixtralImageProcessor"},
                                                         {"processor_class", "PixtralProcessor"},
                                                         {"do_convert_rgb", true},
                                                         {"do_resize", true},
                                                         {"do_rescale", true},
                                                         {"do_normalize", true},
                                                         {"rescale_factor", 1.0 / 255.0},
                                                         {"image_mean", {0.48145466, 0.4578275, 0.40821073}},
                                                         {"image_std", {0.26862954, 0.26130258, 0.27577711}},
                                                         {"patch_size", vision.patch},
                                                         {"resample", 3},
                                                         {"size", {{"longest_edge", vision.image}}}});
}

}  // namespace flux2
