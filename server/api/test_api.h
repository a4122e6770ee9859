#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "image/write_image.h"
#include "server/api/api_context.h"
#include "server/http/errors.h"
#include "server/http/router.h"
#include "server/store/ids.h"
#include "server/store/sql_store.h"
#include "server/store/test_folder.h"
#include "tests/support/paths.h"

namespace flux2 {

// The other side of an exchange: keeps what was answered.
class FakePeer : public Exchange::Peer {
 public:
  struct Channel : EventStream::Channel {
    bool send(std::string text, EventStream::Keep) override {
      if (closed) return false;
      sent += text;
      return true;
    }
    void close() override {
      if (closed) return;
      closed = true;
      for (const auto& call : std::exchange(calls, {})) call();  // what they hold may hold this channel
    }
    void on_closed(std::function<void()> call) override { calls.push_back(std::move(call)); }

    std::string sent;
    bool closed = false;
    std::vector<std::function<void()>> calls;
  };

  void respond(HttpResponse answer) override {
    if (!response) response = std::move(answer);
  }
  std::shared_ptr<EventStream::Channel> stream(Headers) override { return channel = std::make_shared<Channel>(); }
  void on_disconnect(std::function<void()> call) override { disconnect = std::move(call); }

  std::optional<HttpResponse> response;
  std::shared_ptr<Channel> channel;
  std::function<void()> disconnect;
};

// A queue with its storage and routes, but without a listener and a worker: tests play both.
class ApiTest : public testing::Test {
 protected:
  ApiTest() : ApiTest(100) {}
  explicit ApiTest(int64_t limit)
      : folder_(server_test_folder()),
        app_(context_in(folder_)),
        store_(open_sqlite_store(folder_ / "flux2.db")),
        assets_(folder_),
        events_(*store_),
        queue_(*store_, assets_, events_, limit),
        models_(app_),
        api_{.app = app_, .queue = queue_, .models = models_} {}

  std::shared_ptr<FakePeer> ask(ServerRequest request) {
    auto peer = std::make_shared<FakePeer>();
    const auto match = router_.find(request.method, request.path);
    EXPECT_NE(match.route, nullptr) << request.path;
    if (!match.route) return peer;
    request.captured = match.captured;
    request.id = "req";
    const Exchange exchange(std::make_shared<ServerRequest>(std::move(request)), peer);
    try {
      match.route->handler(exchange);
    } catch (...) {
      peer->respond(error_response(family_of(exchange.request().path), http_error_of(std::current_exception()), "req"));
    }
    return peer;
  }
  std::shared_ptr<FakePeer> get(const std::string& path) { return ask({.method = "GET", .path = path}); }
  std::shared_ptr<FakePeer> post(const std::string& path, const Json& body) {
    ServerRequest request{.method = "POST", .path = path};
    request.headers = {{"content-type", "application/json"}, {"host", "localhost:1"}};
    request.body = body.dump();
    return ask(std::move(request));
  }
  std::shared_ptr<FakePeer> post_form(const std::string& path, std::vector<FormPart> parts) {
    ServerRequest request{.method = "POST", .path = path};
    request.headers = {{"content-type", "multipart/form-data; boundary=x"}, {"host", "localhost:1"}};
    request.is_multipart = true;
    request.parts = std::move(parts);
    return ask(std::move(request));
  }

  static FormPart file(std::string name, const std::vector<std::byte>& bytes) {
    FormPart part;
    part.name = std::move(name);
    part.data.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    part.bytes = bytes.size();
    part.is_file = true;
    return part;
  }
  static FormPart text(std::string name, std::string data) {
    FormPart part;
    part.name = std::move(name);
    part.bytes = data.size();
    part.data = std::move(data);
    return part;
  }

  // Claims the next job as a worker does.
  Job claim() {
    auto job = store_->claim("gpu", "worker", "", now_ms());
    EXPECT_TRUE(job);
    return job.value_or(Job());
  }
  // Ends a claimed job with images of that size.
  void complete(Job job, int width = 64, int height = 64) {
    const int64_t count = job.request.value("count", int64_t{1});
    for (int i = 0; i < count; ++i) {
      Image image(width, height, 3);
      image.pixels[0] = static_cast<uint8_t>(i + 1);
      const Asset asset = assets_.put(encode_png(image), {.kind = "image", .job = job.id});
      const JobImage made{.index = i,
                          .asset = asset.id,
                          .seed = job.request.value("seed", uint64_t{0}) + static_cast<uint64_t>(i),
                          .width = width,
                          .height = height};
      store_->add_image(job.id, "worker", made);
      job.images.push_back(made);
    }
    job.state = "completed";
    job.result = Json::parse(R"({"usage":{"text_tokens":3,"reference_tokens":0,"image_tokens":16}})");
    end(std::move(job));
  }
  void end(Job job) {
    job.finished = now_ms();
    EXPECT_TRUE(store_->finish(job));
    queue_.finished(job);
  }

  // Whether it becomes true within some seconds.
  static bool eventually(const std::function<bool()>& condition) {
    for (int i = 0; i < 1000; ++i, std::this_thread::sleep_for(std::chrono::milliseconds(5)))
      if (condition()) return true;
    return condition();
  }

  static Json body_of(const FakePeer& peer) {
    EXPECT_TRUE(peer.response) << "no answer yet";
    return peer.response ? Json::parse(peer.response->body) : Json();
  }
  static int status_of(const FakePeer& peer) { return peer.response ? peer.response->status : 0; }

  std::filesystem::path folder_;
  AppContext app_;
  std::unique_ptr<JobStore> store_;
  AssetStore assets_;
  Events events_;
  JobQueue queue_;
  ModelCatalog models_;
  ApiContext api_;
  Router router_;

 private:
  // A data folder of the test's own; the model is pico of the source tree.
  static AppContext context_in(const std::filesystem::path& folder) {
    AppContext context;
    context.environment = [home = folder.string(), pico = test::pico_folder().string()](const char* name) -> const char* {
      const std::string_view wanted = name;
      return wanted == "FLUX2_HOME" ? home.c_str() : wanted == "FLUX2_BUNDLED" ? pico.c_str() : nullptr;
    };
    return context;
  }
};

}  // namespace flux2
