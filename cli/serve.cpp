#include "server/server.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <mutex>
#include <thread>

#include "app/request_limits.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/serve.h"
#include "cli/server_settings.h"
#include "cli/user_input.h"
#include "server/log_lines.h"

namespace flux2 {

namespace {

constexpr int kSecondsToEnd = 10;

// "generate:SECRET" → a key that may generate images; without a scope a key may do everything.
AccessKey key_of(const std::string& text) {
  for (const auto& [word, scope] :
       {std::pair{"generate:", Scope::Generate}, std::pair{"manage:", Scope::Manage}, std::pair{"admin:", Scope::Admin}})
    if (text.starts_with(word)) return hashed_key(text.substr(std::string_view(word).size()), scope);
  return hashed_key(text, Scope::Admin);
}

// "@keys.txt" → the lines of that file; anything else is a key itself.
std::vector<AccessKey> read_keys(const std::vector<std::string>& values) {
  std::vector<std::string> keys;
  for (const std::string& value : values) {
    if (!value.starts_with('@')) {
      keys.push_back(value);
      continue;
    }
    const std::string text = read_text_file(value.substr(1), {.bytes = 1 << 16});
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      if (const std::string_view line = trimmed(std::string_view(text).substr(begin, end - begin)); !line.empty())
        keys.emplace_back(line);
      begin = end + 1;
    }
  }
  std::vector<AccessKey> hashed;
  for (const std::string& key : keys) {
    check(key.size() >= 8, "an API key needs at least 8 characters");
    hashed.push_back(key_of(key));
  }
  return hashed;
}

std::vector<std::string> texts(const Settings& settings, const char* name) {
  const Setting* setting = settings.find(name);
  return setting ? setting->values : std::vector<std::string>{};
}

ServerOptions server_options(const Invocation& run) {
  const Settings& s = run.settings;
  ServerOptions options;
  options.listen.host = s.text("host", "127.0.0.1");
  options.listen.port = static_cast<int>(s.integer("port", 0, 65535).value_or(8190));
  options.listen.socket = s.text("socket");
  options.listen.tls_certificate = s.text("tls-cert");
  options.listen.tls_key = s.text("tls-key");
  check(options.listen.tls_certificate.empty() == options.listen.tls_key.empty(), "--tls-cert and --tls-key belong together");
  options.storage = storage_options(run);
  options.keys = read_keys(texts(s, "api-key"));
  options.insecure = s.flag("insecure");
  options.cors = texts(s, "cors");
  options.host_names = texts(s, "host-name");
  options.queue = s.integer("queue", 1, 1'000'000).value_or(100);
  options.key_limits = {.rate = s.integer("key-rate", 0, 1'000'000).value_or(0),
                        .queue = s.integer("key-queue", 0, 1'000'000).value_or(0),
                        .work = s.integer("key-work", 0, 1'000'000'000'000).value_or(0)};
  options.idle_unload = std::chrono::seconds(s.integer("idle-unload", 0, 10'000'000).value_or(0));
  options.max_batch = static_cast<int>(s.integer("max-batch", 1, 64).value_or(0));
  options.batch_wait = std::chrono::milliseconds(s.integer("batch-wait-ms", 0, 10'000).value_or(5));
  options.max_models = static_cast<size_t>(s.integer("max-models", 1, 100).value_or(4));
  options.preload = s.flag("preload");
  options.no_page = s.flag("no-ui");
  options.page = s.text("ui");
  options.run_jobs = !s.flag("no-worker");
  for (const std::string& folder : texts(s, "model-roots")) options.model_roots.emplace_back(folder);
  const bool other_name = s.is_asked("sam-url") && !s.is_asked("mask-service");
  const std::string masks = other_name ? s.text("sam-url") : s.text("mask-service", s.text("sam-url"));
  if (!masks.empty()) options.mask_service = masks == "off" ? "" : masks;
  options.trash_kept = std::chrono::hours(24 * s.integer("trash-days", 0, 36'500).value_or(30));
  options.preempt_wait = std::chrono::milliseconds(std::llround(1000 * s.number("preempt-wait", 0, 1e6).value_or(30)));
  return options;
}

}  // namespace

// What jobs do not set: the options of this command, the environment and the user's configuration, with every field of a request.
Settings job_defaults(const Invocation& run) {
  Settings defaults = run.settings;
  std::vector<const Field*> fields;
  for (const Field& field : request_fields()) fields.push_back(&field);
  defaults.add(layer_of_environment(fields, run.environment));
  defaults.add(layer_of_file(fields, run.user));
  return defaults;
}

std::filesystem::path server_folder(const Invocation& run) {
  std::filesystem::path folder = run.settings.text("data");
  if (folder.empty()) folder = data_folder(run.environment);
  if (folder.empty())
    throw Error(ErrorCode::InvalidArgument, "the data folder is unknown, because neither HOME nor FLUX2_HOME is set",
                Hint("name one with {0}", {set_option("data", "FOLDER")}));
  return folder;
}

StorageOptions storage_options(const Invocation& run) {
  StorageOptions storage;
  storage.data = server_folder(run);
  storage.database = run.settings.text("database");
  storage.images = run.settings.text("images");
  storage.image_cache = static_cast<uint64_t>(run.settings.integer("image-cache-mb", 0, 1'000'000'000).value_or(4096)) << 20;
  // For tests, which cannot wait half a minute. All processes of a queue must agree on it.
  if (const char* lease = run.environment("FLUX2_LEASE_MS"))
    storage.lease = std::chrono::milliseconds(std::max(std::atoi(lease), 600));
  return storage;
}

int run_serve(Invocation& run) {
  check(run.positional.empty(), "serve takes no arguments, only options");
  AppContext context = run;
  context.limits = limits_of(run.environment, run.user, Limits::for_server());
  // Several threads report here, and a server must not collect what it said.
  std::mutex mutex;
  const std::string format = run.settings.choice("log-format", {"text", "json"}, "");
  const bool as_json = format == "json";
  const auto print_line = [&](const Json& line) {
    const std::lock_guard lock(mutex);
    run.console.note(as_json ? line.dump(-1, ' ', false, Json::error_handler_t::replace) : log_line_text(line));
  };
  context.log = Log([&](LogLevel level, const std::string& text) {
    if (level == LogLevel::PrivateWarning) return;
    const bool is_warning = level == LogLevel::Warning;
    if (!is_warning && run.console.verbosity() < (level == LogLevel::Debug ? 2 : 1)) return;
    if (as_json) return print_line(message_line_json(is_warning ? "warning" : level == LogLevel::Debug ? "debug" : "info", text));
    const std::lock_guard lock(mutex);
    run.console.note(is_warning ? "warning: " + text : text);
  });
  allow_time_to_end(kSecondsToEnd);
  ServerOptions options = server_options(run);
  options.settings = server_settings(run);
  if (!format.empty()) options.log_line = print_line;
  Server server(std::move(context), job_defaults(run), std::move(options));
  server.start();
  {
    const std::lock_guard lock(mutex);
    run.console.result(server.url());
    const std::string text = fmt::format("listening on {}; Ctrl-C stops it", server.url());
    run.console.note(as_json ? message_line_json("info", text).dump() : text);
  }
  while (interrupt_signal() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  server.stop();
  return 128 + interrupt_signal();
}

}  // namespace flux2
