#include "cli/topics.h"

#include <fmt/format.h>

#include "cli/config_keys.h"
#include "cli/console.h"
#include "cli/help_text.h"
#include "cli/options.h"

namespace flux2 {

namespace {

constexpr size_t kVariables = 30, kKeys = 32;  // columns of the left part

// What help says of a field, in the words of the command line.
std::string meaning_of(const Field& field) { return option(field.name).help; }

std::string environment_text() {
  std::string text = wrapped(
      "Environment variables. The command line overrides them; they override configuration files. A variable that is set to "
      "the empty text counts as not set. Flags take true or false.",
      0, 0);
  text += "\n\nSettings, one variable for each option:\n";
  for (const auto* table : {&request_fields(), &program_fields()})
    for (const Field& f : *table)
      if (!f.later && !f.help.empty() && !f.section.empty())
        text += two_columns("  " + environment_name(f), meaning_of(f), kVariables);
  text += "\nFolders, models, downloads and the terminal:\n";
  for (const Variable& v : other_variables()) text += two_columns("  " + v.names, v.meaning, kVariables);
  return text;
}

std::string exit_codes_text() {
  std::string text = "Exit status of every command:\n";
  for (const ExitStatus& s : exit_statuses()) text += two_columns("  " + s.label, s.meaning, 10);
  return text;
}

std::string config_text() {
  std::string text = wrapped(
      "Configuration keys. `flux2 config set KEY VALUE` writes them to config.toml in the data folder; flux2.toml in the current "
      "folder overrides it for a project. `flux2 config list --origin` shows what is set and where.",
      0, 0);
  text += "\n\nKeys:\n";
  for (const std::string& key : config_keys()) {
    const Field* f = config_field(key);
    text += two_columns("  " + key, f ? meaning_of(*f) : "folders with models, searched before the data folder", kKeys);
  }
  text += two_columns("  styles.NAME", "a prompt template of your own; {prompt} stands for the prompt", kKeys);
  return text +
         "\nExample of a flux2.toml:\n  [generate]\n  model = \"flux.2-klein-4b\"\n  size = \"16:9\"\n\n  [memory]\n  quant = "
         "\"int8\"\n";
}

}  // namespace

const std::vector<Topic>& topics() {
  static const std::vector<Topic> list = {
      {"environment", "environment variables", environment_text},
      {"exit-codes", "what the exit status says", exit_codes_text},
      {"config", "keys of configuration files", config_text},
  };
  return list;
}

const Topic* find_topic(std::string_view name) {
  for (const Topic& topic : topics())
    if (topic.name == name) return &topic;
  return nullptr;
}

const std::vector<Variable>& other_variables() {
  static const std::vector<Variable> list = {
      {"FLUX2_HOME",
       "the data folder: models, registry, config.toml, caches (default: XDG_DATA_HOME/flux2, else "
       "~/.local/share/flux2)"},
      {"FLUX2_BUNDLED", "folder of the bundled model; empty: none"},
      {"FLUX_WEIGHTS_PATH", "a folder in which models are looked for first"},
      {"KLEIN_4B_MODEL_PATH, KLEIN_9B_MODEL_PATH", "transformer file of a model, as the original scripts name them"},
      {"KLEIN_4B_BASE_MODEL_PATH, KLEIN_9B_BASE_MODEL_PATH", "the same for the base models"},
      {"FLUX2_MODEL_PATH", "the same for FLUX.2 dev"},
      {"AE_MODEL_PATH", "autoencoder file, as the original scripts name it"},
      {"QWEN3_4B_PATH, QWEN3_8B_PATH", "text encoder of klein 4B and 9B"},
      {"QWEN3_4B_TOKENIZER_PATH, QWEN3_8B_TOKENIZER_PATH", "tokenizer of klein 4B and 9B"},
      {"HF_TOKEN, HUGGING_FACE_HUB_TOKEN, HF_TOKEN_PATH", "token for gated repositories, or the file that contains it"},
      {"HF_HUB_DISABLE_IMPLICIT_TOKEN", "1: send no token unless one is given on the command line"},
      {"HF_HOME, HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, XDG_CACHE_HOME",
       "where downloads are kept, shared with Python's hub library"},
      {"HF_ENDPOINT", "address of the hub"},
      {"HF_HUB_OFFLINE", "1: no network access, like --offline"},
      {"HF_HUB_DOWNLOAD_TIMEOUT, HF_HUB_ETAG_TIMEOUT", "seconds without an answer before a download is retried"},
      {"HF_HUB_DISABLE_SYMLINKS", "1: the cache contains copies instead of links"},
      {"HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY", "proxies; lower case works too"},
      {"NO_COLOR", "set: messages have no colour"},
  };
  return list;
}

}  // namespace flux2
