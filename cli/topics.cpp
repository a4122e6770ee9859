#include "cli/topics.h"

#include <fmt/format.h>

#include "base/limits.h"
#include "cli/config_keys.h"
#include "cli/console.h"
#include "cli/help_text.h"
#include "cli/options.h"
#include "cli/program_fields.h"

namespace flux2 {

namespace {

constexpr size_t kVariables = 30, kKeys = 32;  // columns of the left part

// What help says of a field, in the words of the command line.
std::string meaning_of(const Field& field) { return option(field.name).help; }

std::string environment_text() {
  std::string text = wrapped(
      "Environment variables. They override configuration files, and the command line overrides them. An empty variable counts "
      "as not set. Variables for flags take true or false.",
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

// Of a key that is no field.
std::string meaning_of(const std::string& key) {
  constexpr std::string_view kLimits = "limits.";
  const LimitField* limit = key.starts_with(kLimits) ? find_limit(std::string_view(key).substr(kLimits.size())) : nullptr;
  if (limit) return fmt::format("largest allowed: {} (default: {})", limit->help, limit->get(Limits{}));
  return "folders with models, searched before the data folder";
}

std::string config_text() {
  std::string text = wrapped(
      "Configuration keys. `flux2 config set KEY VALUE` writes them to config.toml in the data folder. A flux2.toml in the "
      "current folder overrides it for a project: it may set the keys marked with *, which are defaults of images, and styles. "
      "`flux2 config list --origin` shows what is set and where.",
      0, 0);
  text += "\n\nKeys:\n";
  for (const std::string& key : config_keys()) {
    const Field* f = config_field(key);
    const bool in_project = f && f->project != Field::Never;
    text += two_columns((in_project ? "* " : "  ") + key, f ? meaning_of(*f) : meaning_of(key), kKeys);
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
      {"exit-codes", "meaning of the exit status", exit_codes_text},
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
      {"AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN", "keys of the S3-compatible store that --images names"},
      {"FLUX2_BUNDLED", "folder of the bundled model; if it is set but empty, there is no bundled model"},
      {"FLUX_WEIGHTS_PATH", "a folder that is searched for models first"},
      {"KLEIN_4B_MODEL_PATH, KLEIN_9B_MODEL_PATH",
       "transformer file of klein 4B and 9B; these are variables of the reference implementation"},
      {"KLEIN_4B_BASE_MODEL_PATH, KLEIN_9B_BASE_MODEL_PATH", "the same for the base models"},
      {"FLUX2_MODEL_PATH", "the same for FLUX.2 dev"},
      {"AE_MODEL_PATH", "autoencoder file; a variable of the reference implementation"},
      {"QWEN3_4B_PATH, QWEN3_8B_PATH", "text encoder of klein 4B and 9B"},
      {"QWEN3_4B_TOKENIZER_PATH, QWEN3_8B_TOKENIZER_PATH", "tokenizer of klein 4B and 9B"},
      {"HF_TOKEN, HUGGING_FACE_HUB_TOKEN, HF_TOKEN_PATH", "token for gated repositories, or the file that contains it"},
      {"HF_HUB_DISABLE_IMPLICIT_TOKEN", "1: send no token unless one is given on the command line"},
      {"HF_HOME, HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, XDG_CACHE_HOME",
       "where downloads are kept, shared with Python's huggingface_hub"},
      {"HF_ENDPOINT", "address of the model hub (default: https://huggingface.co)"},
      {"HF_HUB_OFFLINE, TRANSFORMERS_OFFLINE", "1: no network access, like --offline"},
      {"HF_HUB_DOWNLOAD_TIMEOUT, HF_HUB_ETAG_TIMEOUT", "seconds without an answer before a download is retried"},
      {"HF_HUB_DISABLE_SYMLINKS", "1: the cache contains copies instead of links"},
      {"HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY", "proxies; lower case works too"},
      {"SSL_CERT_FILE, REQUESTS_CA_BUNDLE, CURL_CA_BUNDLE, SSL_CERT_DIR",
       "file or folder with the certificates that downloads trust; the first that is set counts (default: the system's)"},
      {"RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT, TORCHELASTIC_USE_AGENT_STORE",
       "place of this process among several that train together; launchers such as torchrun set them"},
      {"FLUX2_LIMITS_NAME", "limits for input, such as FLUX2_LIMITS_PIXELS; docs/security.md lists them"},
      {"NO_COLOR", "if it is set, messages have no colour"},
      {"TERM, COLORTERM, TERM_PROGRAM, TMUX", "how this terminal draws images with --show; the terminal sets them"},
      {"KITTY_WINDOW_ID, GHOSTTY_RESOURCES_DIR, ITERM_SESSION_ID, KONSOLE_VERSION",
       "the same, for terminals that can show images"},
      {"LC_ALL, LC_CTYPE, LANG", "whether the terminal shows UTF-8"},
  };
  return list;
}

}  // namespace flux2
