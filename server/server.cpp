#include "server/server.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <mutex>

#include "base/start_thread.h"
#include "engine/engine.h"
#include "server/api/dj.h"
#include "server/api/health.h"
#include "server/api/native.h"
#include "server/api/openai.h"
#include "server/api/openapi.h"
#include "server/api/sdapi.h"
#include "server/http/errors.h"
#include "server/jobs/planner.h"
#include "server/store/ids.h"
#include "server/store/key_store.h"
#include "server/store/sql_store.h"
#include "server/stored_sessions.h"

namespace flux2 {

namespace {

constexpr auto kGrace = std::chrono::milliseconds(2000);  // for answers under way when the server stops
constexpr auto kKeysEvery = std::chrono::seconds(5);      // how soon a new or revoked key counts
constexpr int kKeepAliveEvery = 3;                        // times that

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

std::string worker_name() { return fmt::format("{}/{}/{}", host_name(), ::getpid(), new_id()); }

// Whether the worker of that name belonged to a process of this machine that has ended.
bool has_ended(const std::string& worker) {
  const std::string host = host_name() + "/";
  if (!worker.starts_with(host)) return false;
  const long pid = std::atol(worker.c_str() + host.size());
  return pid > 0 && pid != ::getpid() && ::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH;
}

// Jobs of a server that was killed need not wait until their leases end.
void end_leases_of_the_dead(JobStore& store, int64_t now) {
  constexpr int64_t kLongAgo = 3'600'000;
  for (const char* state : {"running", "cancelling"})
    for (const Job& job : store.list({.state = state, .kind = {}, .project = {}, .before = {}, .limit = 1000}))
      if (has_ended(job.worker)) store.renew(job.worker, now - kLongAgo);
}

// For the log: also what clients are not told.
std::string reason_of(std::exception_ptr thrown) {
  try {
    std::rethrow_exception(std::move(thrown));
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "unknown";
  }
}

bool is_this_machine(const ListenOptions& listen) {
  return !listen.socket.empty() || listen.host == "localhost" || listen.host == "::1" || listen.host.starts_with("127.");
}

AccessOptions access_options(const ServerOptions& options, const KeyStore& keys) {
  const bool local = is_this_machine(options.listen);
  if (!local && options.keys.empty() && keys.list().empty() && !options.insecure)
    throw Error(ErrorCode::InvalidArgument,
                fmt::format("other machines could use this server at {} without a key", options.listen.host),
                Hint("set {0}, or allow that with {1}", {set_option("api_key", "KEY"), set_option("insecure")}));
  return {.keys = options.keys,
          .loopback = local,
          .host_names = options.host_names,
          .cors_origins = options.cors,
          .tls = !options.listen.tls_certificate.empty()};
}

std::filesystem::path prepared(const std::filesystem::path& folder) {
  std::error_code failure;
  std::filesystem::create_directories(folder / "uploads" / "incoming", failure);
  if (failure) fail(ErrorCode::CannotWrite, "the data folder {} cannot be made: {}", folder.string(), failure.message());
  return folder;
}

}  // namespace

struct Server::Parts {
  Parts(AppContext c, Settings d, ServerOptions o)
      : context(std::move(c)),
        defaults(std::move(d)),
        options(std::move(o)),
        assets(prepared(options.data)),
        store(open_sqlite_store(options.data / "flux2.db")),
        keys(options.data / "flux2.db"),
        events(*store),
        queue(*store, assets, events, options.queue),
        planner(context, defaults, assets),
        worker(context, defaults, queue,
               {.name = worker_name(),
                .idle_unload = options.idle_unload,
                .max_batch = options.max_batch,
                .batch_wait = options.batch_wait,
                .max_models = options.max_models}),
        models(context),
        sessions(keys),
        access(access_options(options, keys), sessions, [] { return now_ms() / 1000; }),
        api{.app = context, .queue = queue, .models = models} {}

  void add_routes();
  Admission admit(ServerRequest& head);
  void handle(const Exchange& exchange);
  void read_keys();
  void keep_alive();

  AppContext context;
  Settings defaults;
  ServerOptions options;
  AssetStore assets;
  std::unique_ptr<JobStore> store;
  KeyStore keys;
  Events events;
  JobQueue queue;
  Planner planner;
  Worker worker;
  ModelCatalog models;
  StoredSessions sessions;
  Access access;
  ApiContext api;
  Router router;
  std::unique_ptr<HttpListener> listener;

  std::atomic<bool> stopping = false;
  std::mutex mutex;
  std::condition_variable stopped;
  std::jthread keep_alive_thread;
};

void Server::Parts::add_routes() {
  const RequestSpec spec = spec_of(defaults);
  models.set_default(spec);
  api.loaded_model = [this] { return worker.state().model(); };
  api.is_loaded = [this](const std::string& name) {
    const WorkerState state = worker.state();
    return std::any_of(state.models.begin(), state.models.end(), [&](const ModelInMemory& m) { return m.name == name; });
  };
  if (gpu_is_there()) api.device_memory = [this] { return worker.state().device_memory; };
  api.is_loading = [this] { return worker.state().loading; };
  api.load_model = [this](const std::string& name) { worker.load(name); };
  api.unload_model = [this] { worker.unload(); };
  api.is_tls = !options.listen.tls_certificate.empty();
  add_job_routes(router, api);
  add_event_routes(router, api);
  add_asset_routes(router, api);
  add_info_routes(router, api, defaults, &worker);
  add_openai_routes(router, api);
  add_sdapi_routes(router, api);
  add_dj_routes(router, api);
  add_health_routes(router, api,
                    {.stopping = [this] { return stopping.load(); },
                     .connections = [this] { return listener ? listener->counts() : HttpListener::Counts{}; },
                     .worker = &worker});
  router.add({.method = "POST",
              .pattern = "/api/v1/session",
              .handler = answering([this](const ServerRequest& request) {
                const Json body = json_body(request, context);
                if (body.size() != 1 || !body.contains("key") || !body["key"].is_string())
                  throw HttpError(400, "invalid_request", "the body must be {\"key\": \"…\"}", "key");
                return access.sign_in(request, body["key"].get<std::string>());
              }),
              .scope = Scope::None,
              .body_limit = 4096,
              .summary = "sign in with a key: the answer sets a cookie",
              .body = R"({"type":"object","required":["key"],"properties":{"key":{"type":"string"}}})"});
  router.add({.method = "DELETE",
              .pattern = "/api/v1/session",
              .handler = answering([this](const ServerRequest& request) { return access.sign_out(request); }),
              .scope = Scope::None,
              .summary = "sign out"});
  add_openapi_routes(router);
}

// On an I/O thread: who may do what, and where the request goes.
Admission Server::Parts::admit(ServerRequest& head) {
  Admission admission;
  const Family family = family_of(head.path);
  try {
    admission.headers = access.cors_headers(head);
    if (auto answer = access.preflight(head)) {
      admission.refusal = std::move(*answer);
      return admission;
    }
    const Router::Match match = router.find(head.method, head.path);
    access.check(head, match.route ? match.route->scope : Scope::None);
    if (stopping) throw HttpError(503, "shutting_down", "the server is about to stop");
    if (!match.route) {
      if (match.allowed.empty()) throw HttpError(404, "unknown_url", "there is no such address: " + head.path);
      HttpError error(405, "method_not_allowed", fmt::format("{} is not possible here", head.method));
      std::string allowed;
      for (const std::string& method : match.allowed) allowed += (allowed.empty() ? "" : ", ") + method;
      error.headers = {{"allow", allowed}};
      throw error;
    }
    head.captured = match.captured;
    admission.body_limit = match.route->body_limit;
  } catch (...) {
    admission.refusal = error_response(family, http_error_of(std::current_exception()), head.id);
  }
  return admission;
}

void Server::Parts::handle(const Exchange& exchange) {
  const ServerRequest& request = exchange.request();
  try {
    const Router::Match match = router.find(request.method, request.path);
    if (!match.route) throw HttpError(404, "unknown_url", "there is no such address");
    match.route->handler(exchange);
  } catch (...) {
    const HttpError error = http_error_of(std::current_exception());
    if (error.status >= 500)
      context.log.warn("request {}: {} {}: {}", request.id, request.method, request.path, reason_of(std::current_exception()));
    exchange.respond(error_response(family_of(request.path), error, request.id));
  }
}

void Server::Parts::read_keys() {
  std::vector<AccessKey> known;
  for (const ApiKey& key : keys.list()) known.push_back({key.sha256, scope_named(key.scope), key.name});
  access.set_more_keys(std::move(known));
  sessions.refresh();
}

void Server::Parts::keep_alive() {
  std::unique_lock lock(mutex);
  for (int round = 1; !stopped.wait_for(lock, kKeysEvery, [this] { return stopping.load(); }); ++round) {
    lock.unlock();
    try {
      read_keys();
      if (round % kKeepAliveEvery == 0) {
        keys.prune(now_ms());
        events.publish_progress(kKeepAlive, Json::object(), "");
      }
    } catch (const std::exception& e) {
      context.log.warn("the keys were not read again: {}", e.what());
    }
    lock.lock();
  }
}

bool server_available() { return HttpListener::available(); }

Server::Server(AppContext context, Settings defaults, ServerOptions options)
    : parts_(std::make_unique<Parts>(std::move(context), std::move(defaults), std::move(options))) {}

Server::~Server() { stop(); }

void Server::start() {
  Parts& p = *parts_;
  const AssetStore::Swept swept = p.assets.sweep();
  if (swept.files_removed > 0) p.context.log.info("removed {} image files that no job refers to", swept.files_removed);
  if (swept.rows_missing > 0) p.context.log.warn("the files of {} images are missing", swept.rows_missing);
  end_leases_of_the_dead(*p.store, now_ms());
  for (const Job& job : p.store->recover(now_ms())) p.queue.finished(job);
  p.read_keys();
  p.queue.set_admission([&p](const Json& request) { p.planner.check(request); });
  p.add_routes();
  ListenOptions listen = p.options.listen;
  listen.upload_folder = p.options.data / "uploads" / "incoming";
  listen.log = p.context.log;
  p.listener = std::make_unique<HttpListener>(
      listen, [&p](ServerRequest& head) { return p.admit(head); }, [&p](const Exchange& exchange) { p.handle(exchange); });
  p.listener->on_websocket(
      [&p](const ServerRequest& head, std::shared_ptr<EventStream::Channel> channel) { follow_dj_job(p.api, head, channel); });
  p.listener->start();
  p.api.base_url = p.listener->url();
  p.worker.start();
  if (p.options.preload) p.worker.load("");
  p.keep_alive_thread = start_thread("signs of life", [&p] { p.keep_alive(); });
}

std::string Server::url() const { return parts_->listener->url(); }

void Server::stop() {
  Parts& p = *parts_;
  {
    const std::lock_guard lock(p.mutex);
    if (p.stopping.exchange(true)) return;
  }
  p.stopped.notify_all();
  p.worker.stop();  // first, so that clients that wait learn of the end
  if (p.listener) p.listener->stop(kGrace);
  if (p.keep_alive_thread.joinable()) p.keep_alive_thread.join();
}

}  // namespace flux2
