#include "server/server.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
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
#include "server/store/ids.h"
#include "server/store/key_store.h"
#include "server/store/sqlite_store.h"

namespace flux2 {

namespace {

constexpr auto kGrace = std::chrono::milliseconds(2000);  // for answers under way when the server stops
constexpr auto kKeepAliveEvery = std::chrono::seconds(15);

std::string worker_name() { return fmt::format("{}-{}", ::getpid(), new_id()); }

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
        worker(context, defaults, queue,
               {.name = worker_name(),
                .idle_unload = options.idle_unload,
                .max_batch = options.max_batch,
                .batch_wait = options.batch_wait}),
        models(context),
        api{.app = context, .queue = queue, .models = models} {}

  void add_routes();
  Admission admit(ServerRequest& head);
  void handle(const Exchange& exchange);
  void keep_alive();

  AppContext context;
  Settings defaults;
  ServerOptions options;
  AssetStore assets;
  std::unique_ptr<JobStore> store;
  KeyStore keys;
  Events events;
  JobQueue queue;
  Worker worker;
  ModelCatalog models;
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
  api.default_model = spec.model && !spec.names_only.contains("model") ? "" : spec.model.value_or("");
  api.loaded_model = [this] { return worker.state().model; };
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
  add_openapi_routes(router);
}

// On an I/O thread: who may do what, and where the request goes.
Admission Server::Parts::admit(ServerRequest& head) {
  Admission admission;
  const Family family = family_of(head.path);
  try {
    const Router::Match match = router.find(head.method, head.path);
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
    if (error.status >= 500) context.log.warn("request {}: {} {}: {}", request.id, request.method, request.path, error.what());
    exchange.respond(error_response(family_of(request.path), error, request.id));
  }
}

void Server::Parts::keep_alive() {
  std::unique_lock lock(mutex);
  while (!stopped.wait_for(lock, kKeepAliveEvery, [this] { return stopping.load(); })) {
    lock.unlock();
    events.publish_progress(kKeepAlive, Json::object(), "");
    lock.lock();
  }
}

Server::Server(AppContext context, Settings defaults, ServerOptions options)
    : parts_(std::make_unique<Parts>(std::move(context), std::move(defaults), std::move(options))) {}

Server::~Server() { stop(); }

void Server::start() {
  Parts& p = *parts_;
  const AssetStore::Swept swept = p.assets.sweep();
  if (swept.files_removed > 0) p.context.log.info("removed {} image files that no job refers to", swept.files_removed);
  if (swept.rows_missing > 0) p.context.log.warn("the files of {} images are missing", swept.rows_missing);
  for (const Job& job : p.store->recover(now_ms())) p.queue.finished(job);
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
