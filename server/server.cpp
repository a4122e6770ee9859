#include "server/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>

#include "app/mask_service.h"
#include "app/picture_maker.h"
#include "base/start_thread.h"
#include "engine/engine.h"
#include "server/api/dj.h"
#include "server/api/enlarging.h"
#include "server/api/health.h"
#include "server/api/native.h"
#include "server/api/native_settings.h"
#include "server/api/native_training.h"
#include "server/api/openai.h"
#include "server/api/openapi.h"
#include "server/api/page.h"
#include "server/api/sdapi.h"
#include "server/api/studio.h"
#include "server/http/errors.h"
#include "server/jobs/planner.h"
#include "server/jobs/store_watcher.h"
#include "server/jobs/upscale_service.h"
#include "server/jobs/url_images.h"
#include "server/log_lines.h"
#include "server/model_work.h"
#include "server/storage.h"
#include "server/store/ids.h"
#include "server/store/key_store.h"
#include "server/store/key_usage.h"
#include "server/store/postgres_sql.h"
#include "server/store/sql_store.h"
#include "server/stored_sessions.h"
#include "server/worker_names.h"

namespace flux2 {

namespace {

constexpr auto kGrace = std::chrono::milliseconds(2000);  // for answers under way when the server stops
constexpr auto kKeysEvery = std::chrono::seconds(5);      // how soon a new or revoked key counts
constexpr int kKeepAliveEvery = 3;                        // times that
constexpr int kTrashEvery = 720;                          // an hour
constexpr int64_t kUsageKeptMs = 7'200'000;               // work is counted per hour

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

HttpError database_unavailable() {
  HttpError error(503, "database_unavailable", "the database cannot be reached at present");
  error.hint = "try again in a few seconds";
  error.headers = {{"retry-after", "3"}};
  return error;
}

// What clients are told. The name of the database's host is not for them.
HttpError error_for_clients(std::exception_ptr thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const DatabaseAway&) {
    return database_unavailable();
  } catch (...) {
    return http_error_of(thrown);
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
          .tls = !options.listen.tls_certificate.empty(),
          .limits = options.key_limits};
}

const StorageOptions& prepared(const StorageOptions& storage) {
  std::error_code failure;
  std::filesystem::create_directories(storage.data / "uploads" / "incoming", failure);
  if (failure) fail(ErrorCode::CannotWrite, "cannot create the data folder {}: {}", storage.data.string(), failure.message());
  return storage;
}

AllowedFolders allowed_folders(const AppContext& context, const ServerOptions& options) {
  std::vector<std::filesystem::path> folders = options.model_roots;
  for (const std::filesystem::path& folder : model_folders(context)) folders.push_back(folder);
  folders.push_back(options.storage.data);
  return AllowedFolders(std::move(folders));
}

}  // namespace

struct Server::Parts {
  Parts(AppContext c, Settings d, ServerOptions o)
      : context(std::move(c)),
        defaults(std::move(d)),
        options(std::move(o)),
        database(open_database(prepared(options.storage))),
        assets(options.storage.data, open_blobs(options.storage, context), database),
        store(open_job_store(database, options.storage.lease)),
        keys(database),
        key_usage(database),
        runs(*database),
        events(*store),
        queue(*store, assets, events, options.queue),
        watcher(queue, context.log),
        planner(context, defaults, assets),
        worker(context, defaults, queue,
               {.name = new_worker_name(),
                .idle_unload = options.idle_unload,
                .max_batch = options.max_batch,
                .batch_wait = options.batch_wait,
                .max_models = options.max_models,
                .runs_jobs = options.run_jobs,
                .lease = options.storage.lease,
                .runs = &runs,
                .allowed = allowed_folders(context, options),
                .preempt_wait = options.preempt_wait}),
        training(context, defaults, queue, runs, allowed_folders(context, options)),
        models(context),
        sessions(keys),
        access(access_options(options, keys), sessions, [] { return now_ms() / 1000; }),
        api{.app = context, .queue = queue, .models = models},
        model_work(api, defaults, allowed_folders(context, options), new_worker_name(), [this] {
          models.refresh();
          worker.forget_models();
        }) {}

  void add_routes();
  Admission admit(ServerRequest& head);
  void count_request(const Caller& caller);
  void log_lines(ListenOptions& listen);
  void handle(const Exchange& exchange);
  void read_keys();
  void keep_alive();

  AppContext context;
  Settings defaults;
  ServerOptions options;
  std::shared_ptr<SqlDatabase> database;
  AssetStore assets;
  std::unique_ptr<JobStore> store;
  KeyStore keys;
  KeyUsage key_usage;
  RunStore runs;
  Events events;
  JobQueue queue;
  StoreWatcher watcher;
  Planner planner;
  Worker worker;
  TrainingRuns training;
  ModelCatalog models;
  StoredSessions sessions;
  Access access;
  RateMeter rates;
  std::atomic<int64_t> refused_by_rate = 0;
  ApiContext api;
  ModelWork model_work;
  std::unique_ptr<MaskService> masks;
  UrlImages url_images{http_settings(context.environment)};
  Router router;
  std::unique_ptr<HttpListener> listener;
  std::unique_ptr<UpscaleService> upscales;  // ends before the connections that it answers

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
    return std::any_of(state.models.begin(), state.models.end(),
                       [&](const ModelInMemory& m) { return m.name == name || m.path == name; });
  };
  if (gpu_is_there()) api.device_memory = [this] { return worker.state().device_memory; };
  api.is_loading = [this] { return worker.state().loading; };
  if (options.run_jobs) {
    api.load_model = [this](const std::string& name) { worker.load(name); };
    api.unload_model = [this] { worker.unload(); };
  }
  api.is_tls = !options.listen.tls_certificate.empty();
  add_job_routes(router, api);
  add_event_routes(router, api);
  add_asset_routes(router, api);
  add_gallery_routes(router, api);
  add_project_routes(router, api);
  add_element_routes(router, api);
  add_archive_routes(router, api);
  add_shot_routes(router, api);
  if (!options.mask_service.empty())
    masks = std::make_unique<MaskService>(options.mask_service, http_settings(context.environment), MaskRules(),
                                          context.limits.image);
  api.masks = masks.get();
  add_mask_routes(router, api);
  upscales = std::make_unique<UpscaleService>(engine_options(spec, context));
  api.upscales = upscales.get();
  add_upscale_routes(router, api);
  add_info_routes(router, api, defaults, &worker);
  add_prompt_routes(router, api, defaults);
  model_work.add_routes(router);
  if (options.settings.list) {
    for (const ServerSetting& setting : options.settings.list()) apply_setting(api, setting.key, setting.value);
    add_settings_routes(router, api, options.settings);
  }
  assets.set_fetch([this]() -> AssetStore::Fetch {
    const ApiContext::UrlFetch allowed = api.url_fetch;
    if (allowed == ApiContext::UrlFetch::Off) return {};
    return [this, http = allowed == ApiContext::UrlFetch::Http](const std::string& url) {
      return url_images.fetch(url, {.plain_http = http});
    };
  });
  add_training_routes(router, api, training);
  add_dataset_routes(router, api, training);
  add_openai_routes(router, api);
  add_sdapi_routes(router, api);
  add_dj_routes(router, api);
  add_health_routes(router, api,
                    {.stopping = [this] { return stopping.load(); },
                     .connections = [this] { return listener ? listener->counts() : HttpListener::Counts{}; },
                     .worker = &worker,
                     .refused_by_rate = [this] { return refused_by_rate.load(); }});
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
  if (!options.no_page) add_page_routes(router, options.page);
  add_openapi_routes(router);
}

void Server::Parts::count_request(const Caller& caller) {
  try {
    rates.count(caller, now_ms());
  } catch (const HttpError&) {
    ++refused_by_rate;
    throw;
  }
}

// One line for each request, and one for each state of a job. Prompts are in neither.
void Server::Parts::log_lines(ListenOptions& listen) {
  if (!options.log_line) return;
  listen.on_request = [this](const RequestLine& line) { options.log_line(request_line_json(line)); };
  events.listen([this](const Event& event) {
    if (!event.job.empty() && event.id != 0 && event.name.starts_with("job.")) options.log_line(job_line_json(event));
  });
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
    access.check(head, match.route ? match.route->scope : Scope::None, &head.caller);
    count_request(head.caller);
    if (stopping) throw HttpError(503, "shutting_down", "the server is about to stop");
    if (!match.route) {
      if (match.allowed.empty()) throw HttpError(404, "unknown_url", "unknown address: " + head.path);
      HttpError error(405, "method_not_allowed", fmt::format("the method {} is not supported at this address", head.method));
      std::string allowed;
      for (const std::string& method : match.allowed) allowed += (allowed.empty() ? "" : ", ") + method;
      error.headers = {{"allow", allowed}};
      throw error;
    }
    head.captured = match.captured;
    admission.body_limit = match.route->body_limit;
    admission.form_limit = match.route->form_limit;
  } catch (...) {
    admission.refusal = error_response(family, http_error_of(std::current_exception()), head.id);
  }
  return admission;
}

void Server::Parts::handle(const Exchange& exchange) {
  const ServerRequest& request = exchange.request();
  try {
    const Router::Match match = router.find(request.method, request.path);
    if (!match.route) throw HttpError(404, "unknown_url", "unknown address");
    // Calls wait for a database that has gone away. Those that come later are refused, so that threads stay free.
    if (!store->is_available() && request.path != "/healthz" && request.path != "/readyz") throw database_unavailable();
    match.route->handler(exchange);
  } catch (...) {
    const HttpError error = error_for_clients(std::current_exception());
    if (error.status >= 500)
      context.log.warn("request {}: {} {}: {}", request.id, request.method, request.path, reason_of(std::current_exception()));
    exchange.respond(error_response(family_of(request.path), error, request.id));
  }
}

void Server::Parts::read_keys() {
  std::vector<AccessKey> known;
  for (const ApiKey& key : keys.list())
    known.push_back({key.sha256, scope_named(key.scope), key.name, {key.rate, key.queue, key.work}});
  access.set_more_keys(std::move(known));
  sessions.refresh();
}

void Server::Parts::keep_alive() {
  std::unique_lock lock(mutex);
  for (int round = 1; !stopped.wait_for(lock, kKeysEvery, [this] { return stopping.load(); }); ++round) {
    lock.unlock();
    try {
      read_keys();
      training.revive();
      if (round % kTrashEvery == 1) purge_trash(assets, events, now_ms() - std::chrono::milliseconds(options.trash_kept).count());
      if (round % kKeepAliveEvery == 0) {
        keys.prune(now_ms());
        key_usage.prune(now_ms() - kUsageKeptMs);
        events.publish_progress(kKeepAlive, Json::object(), "");
      }
    } catch (const std::exception& e) {
      context.log.warn("the keys were not read again: {}", e.what());
    }
    lock.lock();
  }
}

bool server_available() { return HttpListener::available(); }
bool server_knows_postgres() { return server_available() && postgres_available(); }

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
  p.training.revive();
  p.queue.set_admission([&p](const Json& request) { return p.planner.check(request); });
  p.queue.set_usage(&p.key_usage);
  p.add_routes();
  ListenOptions listen = p.options.listen;
  listen.upload_folder = p.options.storage.data / "uploads" / "incoming";
  listen.log = p.context.log;
  p.log_lines(listen);
  p.listener = std::make_unique<HttpListener>(
      listen, [&p](ServerRequest& head) { return p.admit(head); }, [&p](const Exchange& exchange) { p.handle(exchange); });
  p.listener->on_websocket(
      [&p](const ServerRequest& head, std::shared_ptr<EventStream::Channel> channel) { follow_dj_job(p.api, head, channel); });
  p.listener->start();
  p.api.base_url = p.listener->url();
  p.watcher.start();
  p.worker.start();
  p.model_work.start();
  if (p.options.preload && p.options.run_jobs) p.worker.load("");
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
  p.model_work.stop();
  p.worker.stop();  // first, so that clients that wait learn of the end
  p.watcher.stop();
  if (p.listener) p.listener->stop(kGrace);
  p.queue.stop();  // after the clients, which cancel their jobs when they leave
  if (p.keep_alive_thread.joinable()) p.keep_alive_thread.join();
}

}  // namespace flux2
