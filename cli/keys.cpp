#include "cli/keys.h"

#include <fmt/format.h>

#include "base/text.h"
#include "server/store/ids.h"
#include "server/store/key_store.h"
#include "server/store/postgres_sql.h"
#include "server/store/sqlite_sql.h"

namespace flux2 {

namespace {

KeyStore open_keys(const Invocation& run) {
  const std::string database = run.settings.text("database");
  return KeyStore(database.empty() ? open_sqlite(server_folder(run) / "flux2.db") : open_postgres(database));
}

Json key_json(const ApiKey& key) {
  Json json = {{"id", key.id}, {"name", key.name}, {"scope", key.scope}, {"created_at", rfc3339(key.created)}};
  if (key.rate > 0) json["rate"] = key.rate;
  if (key.queue > 0) json["queue"] = key.queue;
  if (key.work > 0) json["work"] = key.work;
  return json;
}

int run_keys_add(Invocation& run) {
  check(run.positional.size() == 1, "name the key: flux2 keys add NAME");
  const std::string scope = run.settings.choice("scope", {"generate", "manage", "admin"}, "generate");
  const auto limit = [&](const char* name) { return run.settings.integer(name, 1, 1'000'000'000'000).value_or(0); };
  const KeyStore::Added added =
      open_keys(run).add(run.positional.front(), scope, {.rate = limit("rate"), .queue = limit("queue"), .work = limit("work")});
  if (run.console.json()) {
    Json json = key_json(added.key);
    json["key"] = added.secret;
    run.console.result(pretty(json));
    return 0;
  }
  run.console.result(added.secret);
  run.console.note("this key is shown only once; clients send it as \"Authorization: Bearer KEY\"");
  return 0;
}

int run_keys_list(Invocation& run) {
  check(run.positional.empty(), "list takes no arguments");
  const std::vector<ApiKey> keys = open_keys(run).list();
  if (run.console.json()) {
    Json list = Json::array();
    for (const ApiKey& key : keys) list.push_back(key_json(key));
    run.console.result(pretty(list));
    return 0;
  }
  for (const ApiKey& key : keys)
    run.console.result(fmt::format("{}  {:<8}  {}  {}", key.id, key.scope, rfc3339(key.created).substr(0, 10), key.name));
  if (keys.empty()) run.console.note("no keys yet; `flux2 keys add NAME` makes one");
  return 0;
}

int run_keys_revoke(Invocation& run) {
  check(run.positional.size() == 1, "name the key by its id: flux2 keys list shows them");
  KeyStore keys = open_keys(run);
  if (!keys.revoke(run.positional.front()))
    throw Error(ErrorCode::NotFound, fmt::format("unknown key id {}", printable(run.positional.front())),
                Hint("{0} shows the ids", {run_command("keys list")}));
  run.console.note("revoked; a running server refuses it within five seconds");
  return 0;
}

}  // namespace

std::vector<OptionGroup> keys_options() {
  return {{"Keys",
           {{"scope", 0, "NAME", "add: what the key allows: generate, manage (load models) or admin (default: generate)"},
            {"rate", 0, "N", "add: requests a minute (default: as many as the server allows each key)"},
            {"queue", 0, "N", "add: jobs that may wait and run at a time"},
            {"work", 0, "N", "add: megapixels times steps an hour; 1024x1024 in 4 steps is 4"},
            option("data"),
            option("database")}},
          version_options().front()};
}

const std::vector<Command>& keys_actions() {
  static const std::vector<Command> list = {
      {"add",
       {},
       "make a key and print it",
       "NAME [--scope generate|manage|admin] [--rate N] [--queue N] [--work N]",
       keys_options,
       {"flux2 keys add laptop", "flux2 keys add guest --rate 60 --queue 2 --work 500",
        "flux2 keys add ops --scope admin --data /var/lib/flux2 --json"},
       run_keys_add},
      {"list",
       {"ls"},
       "list the keys",
       "",
       keys_options,
       {"flux2 keys list", "flux2 keys list --json", "flux2 keys ls"},
       run_keys_list},
      {"revoke",
       {"remove"},
       "end a key and everything that signed in with it",
       "ID",
       keys_options,
       {"flux2 keys revoke 01JD0000000000000000000000", "flux2 keys remove 01JD0000000000000000000000",
        "flux2 keys revoke 01JD0000000000000000000000 --data /var/lib/flux2"},
       run_keys_revoke}};
  return list;
}

int run_keys(Invocation& run) {
  if (run.positional.empty()) return run_keys_list(run);
  std::vector<std::string> names;
  for (const Command& action : keys_actions()) names.push_back(action.name);
  const std::string near = nearest_word(run.positional[0], names);
  throw Error(ErrorCode::InvalidArgument, fmt::format("unknown action \"{}\"", printable(run.positional[0])),
              near.empty() ? Hint("use add, list or revoke") : Hint("did you mean " + near + "?"));
}

}  // namespace flux2
