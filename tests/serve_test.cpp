// `flux2 serve` and `flux2 client` as people use them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <map>
#include <random>
#include <sstream>
#include <thread>

#include "base/base64.h"
#include "base/json.h"
#include "image/read_image.h"
#include "image/write_image.h"
#include "net/http.h"
#include "server/store/test_postgres.h"
#include "tests/support/http_server.h"
#include "tests/support/random_image_prompt.h"
#include "tests/support/served.h"

namespace flux2::test {
namespace {

using testing::HasSubstr;

class Serve : public Served {
 protected:
  // A server on a free port, with the bundled model and this test's folder as data folder.
  void serve(std::vector<std::string> more = {}) {
    std::vector<std::string> words = {"serve", "--port", "0", "--data", (folder_ / "data").string()};
    words.insert(words.end(), more.begin(), more.end());
    listen(start(words));
  }
  Json small_job(int seed) const {
    return {{"prompt", "a red circle"}, {"width", 64}, {"height", 64}, {"steps", 2}, {"seed", seed}};
  }
  std::vector<uint8_t> pixels(const std::string& bytes) const { return read_image(std::as_bytes(std::span(bytes))).pixels; }
  std::vector<uint8_t> pixels_of_job(const std::string& id) const {
    return pixels(send("GET", "/api/v1/jobs/" + id + "/images/0").body);
  }
  std::vector<uint8_t> pixels_of_base64(const std::string& text) const { return read_image(base64_decode(text)).pixels; }
};

TEST_F(Serve, EveryInterfaceGivesThePixelsOfTheCommandLine) {
  serve();
  struct Case {
    std::vector<std::string> words;
    Json native, openai, sdapi;
  };
  const std::vector<Case> cases = {
      {{"--size", "64", "--seed", "5", "--steps", "3"},
       {{"width", 64}, {"height", 64}, {"seed", 5}, {"steps", 3}},
       {{"size", "64x64"}, {"seed", 5}, {"steps", 3}},
       {{"width", 64}, {"height", 64}, {"seed", 5}, {"steps", 3}}},
      {{"--size", "96x64", "--seed", "6", "--steps", "2", "--cfg", "2", "-n", "blue"},
       {{"width", 96}, {"height", 64}, {"seed", 6}, {"steps", 2}, {"cfg", 2}, {"negative", "blue"}},
       {{"size", "96x64"}, {"flux2", {{"seed", 6}, {"steps", 2}, {"cfg", 2}, {"negative", "blue"}}}},
       {{"width", 96}, {"height", 64}, {"seed", 6}, {"steps", 2}, {"cfg_scale", 2}, {"negative_prompt", "blue"}}},
      {{"--size", "64", "--seed", "7", "--steps", "2", "--sampler", "heun"},
       {{"width", 64}, {"height", 64}, {"seed", 7}, {"steps", 2}, {"sampler", "heun"}},
       {{"size", "64x64"}, {"flux2", {{"seed", 7}, {"steps", 2}, {"sampler", "heun"}}}},
       {{"width", 64}, {"height", 64}, {"seed", 7}, {"steps", 2}, {"sampler_name", "Heun"}}}};
  const std::string prompt = "a red circle on a blue background";
  for (const Case& c : cases) {
    std::vector<std::string> words = {"generate", prompt, "-o", "local.png", "-q"};
    words.insert(words.end(), c.words.begin(), c.words.end());
    ASSERT_EQ(run(start(words)).status, 0);
    const auto local = read_image(folder_ / "local.png").pixels;
    fs::remove(folder_ / "local.png");
    Json native = c.native, openai = c.openai, sdapi = c.sdapi;
    for (Json* request : {&native, &openai, &sdapi}) (*request)["prompt"] = prompt;
    const Json done = wait_for(ask("POST", "/api/v1/jobs", native)["id"]);
    ASSERT_EQ(done["state"], "completed") << done.dump();
    EXPECT_EQ(pixels_of_job(done["id"]), local) << native.dump();
    EXPECT_EQ(pixels_of_base64(ask("POST", "/v1/images/generations", openai)["data"][0]["b64_json"]), local) << openai.dump();
    EXPECT_EQ(pixels_of_base64(ask("POST", "/sdapi/v1/txt2img", sdapi)["images"][0]), local) << sdapi.dump();
    std::vector<std::string> remote = {"client", "generate", "--url", url_, prompt, "-o", "remote.png", "-q"};
    remote.insert(remote.end(), c.words.begin(), c.words.end());
    const Finished finished = run(start(remote));
    ASSERT_EQ(finished.status, 0) << finished.err;
    EXPECT_EQ(read_image(folder_ / "remote.png").pixels, local);
    fs::remove(folder_ / "remote.png");
  }
  EXPECT_EQ(stop(), 128 + SIGTERM);
}

TEST_F(Serve, EditsAndInpaintsAsTheCommandLine) {
  serve();
  Image photo(64, 64, 3), mask(64, 64, 1);
  for (int y = 0; y < 64; ++y)
    for (int x = 0; x < 64; ++x) {
      photo.at(x, y)[0] = static_cast<uint8_t>(4 * x), photo.at(x, y)[1] = static_cast<uint8_t>(4 * y);
      mask.at(x, y)[0] = x < 32 ? 255 : 0;
    }
  const auto photo_png = encode_png(photo), mask_png = encode_png(mask);
  save_image(folder_ / "photo.png", photo_png);
  save_image(folder_ / "mask.png", mask_png);
  ASSERT_EQ(
      run(start({"edit", "-i", "photo.png", "a blue circle", "--seed", "3", "--steps", "2", "-o", "edit.png", "-q"})).status, 0);
  ASSERT_EQ(run(start({"inpaint", "-i", "photo.png", "--mask", "mask.png", "a red door", "--seed", "3", "--steps", "2", "-o",
                       "inpaint.png", "-q"}))
                .status,
            0);
  const Json edit = wait_for(ask("POST", "/api/v1/jobs",
                                 {{"kind", "edit"},
                                  {"prompt", "a blue circle"},
                                  {"seed", 3},
                                  {"steps", 2},
                                  {"references", {base64_encode(photo_png)}}})["id"]);
  EXPECT_EQ(pixels_of_job(edit["id"]), read_image(folder_ / "edit.png").pixels) << edit.dump();
  const Json inpaint = wait_for(ask("POST", "/api/v1/jobs",
                                    {{"kind", "inpaint"},
                                     {"prompt", "a red door"},
                                     {"seed", 3},
                                     {"steps", 2},
                                     {"canvas", base64_encode(photo_png)},
                                     {"mask", base64_encode(mask_png)}})["id"]);
  EXPECT_EQ(pixels_of_job(inpaint["id"]), read_image(folder_ / "inpaint.png").pixels) << inpaint.dump();
  ASSERT_EQ(run(start({"generate", "a field", "--size", "64", "--region", "a red circle", "--region-mask", "mask.png", "--region",
                       "a blue square@32,0,32,32", "--region-reference", "2:photo.png", "--seed", "3", "--steps", "2", "-o",
                       "regions.png", "-q"}))
                .status,
            0);
  const Json circle = {{"prompt", "a red circle"}, {"mask", base64_encode(mask_png)}};
  const Json square = {{"prompt", "a blue square"}, {"box", {32, 0, 32, 32}}, {"references", {base64_encode(photo_png)}}};
  const Json regions = wait_for(ask(
      "POST", "/api/v1/jobs",
      {{"prompt", "a field"}, {"width", 64}, {"height", 64}, {"seed", 3}, {"steps", 2}, {"regions", {circle, square}}})["id"]);
  EXPECT_EQ(pixels_of_job(regions["id"]), read_image(folder_ / "regions.png").pixels) << regions.dump();
}

TEST_F(Serve, ImagePromptsAreThoseOfTheCommandLine) {
  write_random_clip(folder_ / "clip-tiny", *synthetic_clip("clip-tiny"));
  write_random_image_prompt(folder_ / "adapter.safetensors", pico_image_prompt());
  ASSERT_EQ(run(start({"models", "add", "clip-tiny"})).status, 0);
  ASSERT_EQ(run(start({"models", "add", "adapter.safetensors", "--name", "colours"})).status, 0);
  Image photo(48, 40, 3);
  for (int y = 0; y < 40; ++y)
    for (int x = 0; x < 48; ++x) photo.at(x, y)[0] = static_cast<uint8_t>(5 * x), photo.at(x, y)[2] = static_cast<uint8_t>(6 * y);
  const auto png = encode_png(photo);
  save_image(folder_ / "photo.png", png);
  ASSERT_EQ(run(start({"generate", "a field", "--size", "64", "--image-prompt", "photo.png:0.8:0-0.5", "--image-prompt-adapter",
                       "colours", "--seed", "3", "--steps", "2", "-o", "prompted.png", "-q"}))
                .status,
            0);
  serve();
  Json request = {{"prompt", "a field"}, {"width", 64}, {"height", 64}, {"seed", 3}, {"steps", 2}};
  const Json plain = wait_for(ask("POST", "/api/v1/jobs", request)["id"]);
  request["image_prompts"] = {{{"image", base64_encode(png)}, {"strength", 0.8}, {"to", 0.5}}};
  request["image_prompt_adapter"] = "colours";
  const Json prompted = wait_for(ask("POST", "/api/v1/jobs", request)["id"]);
  EXPECT_EQ(pixels_of_job(prompted["id"]), read_image(folder_ / "prompted.png").pixels) << prompted.dump();
  EXPECT_NE(pixels_of_job(prompted["id"]), pixels_of_job(plain["id"]));
  EXPECT_TRUE(ask("POST", "/api/v1/plan", request)["fits"].is_boolean());
  request.erase("image_prompt_adapter");
  const HttpAnswer refused = send("POST", "/api/v1/jobs", request);
  EXPECT_EQ(refused.status, 400) << refused.body;
  EXPECT_THAT(refused.body, testing::HasSubstr("needs an image-prompt adapter"));
}

// Not by their seconds: a busy machine changes them more than 16 times the pixels.
TEST_F(Serve, PlansCountTheExtraPasses) {
  serve();
  Json request = {{"prompt", "a circle"}, {"width", 64}, {"height", 64}, {"steps", 2}};
  const auto phases = [&] {
    std::map<std::string, int64_t> bytes;
    const Json plan = ask("POST", "/api/v1/plan", request);
    for (const Json& phase : plan["phases"]) {
      EXPECT_GT(phase["seconds"].get<double>(), 0) << phase["name"];
      bytes[phase["name"]] = phase["host"];
    }
    return bytes;
  };
  const auto plain = phases();
  request["hires"] = 4;
  const auto hires = phases();
  EXPECT_FALSE(plain.contains("encode refs"));
  EXPECT_TRUE(hires.contains("encode refs")) << "the second pass begins with the enlarged image";
  ASSERT_TRUE(plain.contains("decode") && hires.contains("decode"));
  EXPECT_GT(hires.at("decode"), plain.at("decode")) << "16 times the pixels";
}

TEST_F(Serve, MergesRequestsAndGivesEachItsOwnImage) {
  serve({"--profile", "exact"});
  ask("POST", "/api/v1/queue/pause");
  std::vector<std::string> ids;
  for (int i = 0; i < 4; ++i) {
    Json request = small_job(100 * i);
    request["prompt"] = fmt::format("prompt number {}", i);
    ids.push_back(ask("POST", "/api/v1/jobs", request)["id"]);
  }
  ask("POST", "/api/v1/queue/resume");
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(wait_for(ids[static_cast<size_t>(i)])["state"], "completed");
    ASSERT_EQ(run(start({"generate", fmt::format("prompt number {}", i), "--size", "64", "--steps", "2", "--seed",
                         std::to_string(100 * i), "--profile", "exact", "-o", fmt::format("{}.png", i), "-q"}))
                  .status,
              0);
    EXPECT_EQ(pixels_of_job(ids[static_cast<size_t>(i)]), read_image(folder_ / fmt::format("{}.png", i)).pixels) << i;
  }
  EXPECT_THAT(send("GET", "/metrics").body, HasSubstr("flux2_jobs_merged_total 4"));
}

TEST_F(Serve, EventsFollowAJobAndCanBeReplayed) {
  serve();
  const std::string id = ask("POST", "/api/v1/jobs", small_job(1))["id"];
  wait_for(id);
  std::string text;
  HttpRequest request;
  request.url = url_ + "/api/v1/events";
  request.headers = {{"last-event-id", "0"}};
  const auto enough = [&] { return text.find("event: job.completed") != text.npos; };
  request.cancelled = enough;
  try {
    client_.send(request, {.begin = {}, .data = [&](std::span<const std::byte> bytes) {
                             text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
                             if (enough()) throw Error(ErrorCode::Cancelled, "enough");
                           }});
  } catch (const Error&) {}
  for (const char* event : {"event: hello", "event: job.queued", "event: job.started", "event: image", "event: job.completed"})
    EXPECT_THAT(text, HasSubstr(event));
  EXPECT_LT(text.find("job.queued"), text.find("job.started"));
  EXPECT_LT(text.find("job.started"), text.find("event: job.completed"));
}

TEST_F(Serve, CancelStopsARunningJobSoon) {
  serve();
  Json slow = small_job(1);
  slow["steps"] = 250, slow["width"] = slow["height"] = 256;
  const std::string id = ask("POST", "/api/v1/jobs", slow)["id"], next = ask("POST", "/api/v1/jobs", small_job(2))["id"];
  wait_for(id, "running");
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(send("POST", "/api/v1/jobs/" + id + "/cancel").status, 202);
  EXPECT_EQ(wait_for(id, "cancelled")["state"], "cancelled");
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(20)) << "the whole job takes minutes";
  EXPECT_EQ(wait_for(next)["state"], "completed");
  EXPECT_EQ(send("POST", "/api/v1/jobs/" + id + "/cancel").status, 409);
}

TEST_F(Serve, SigtermGivesTheRunningJobBackToTheQueue) {
  serve();
  Json slow = small_job(1);
  slow["steps"] = 40;
  const std::string id = ask("POST", "/api/v1/jobs", slow)["id"];
  wait_for(id, "running");
  EXPECT_EQ(stop(), 128 + SIGTERM);
  serve();
  const Json done = wait_for(id);
  EXPECT_EQ(done["state"], "completed") << done.dump();
  EXPECT_EQ(done["images"].size(), 1u);
}

TEST_F(Serve, LosesNothingWhenItIsKilled) {
  const char* asked = std::getenv("FLUX2_KILLS");
  const int kills = asked ? std::atoi(asked) : 4;
  std::mt19937 random(7);
  std::set<std::string> ids;
  for (int k = 0; k < kills; ++k) {
    serve();
    std::atomic<bool> ended = false;
    std::mutex mutex;
    std::vector<std::thread> clients;
    for (int c = 0; c < 3; ++c)
      clients.emplace_back([&, c] {
        for (int i = 0; !ended; ++i) {
          const HttpAnswer answer = send("POST", "/api/v1/jobs", small_job(1000 * c + i));
          if (answer.status == 202) {
            const std::lock_guard lock(mutex);
            ids.insert(parse_json(answer.body)["id"].get<std::string>());
          }
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
        }
      });
    std::this_thread::sleep_for(std::chrono::milliseconds(50 + random() % 600));
    server_->signal(SIGKILL);
    ended = true;
    for (std::thread& client : clients) client.join();
    server_->wait(10);
    server_.reset();
  }
  serve({"--queue", "100000"});
  // A job that ran when its server was killed is "failed: interrupted" now.
  for (const std::string& id : ids) {
    const Json last = wait_for(id, "", 300);
    const bool fine = last["state"] == "completed" || (last["state"] == "failed" && last["error"]["code"] == "interrupted");
    EXPECT_TRUE(fine) << last.dump();
    if (last["state"] != "completed") continue;
    ASSERT_EQ(last["images"].size(), 1u) << last.dump();
    EXPECT_EQ(pixels_of_job(id).size(), 64u * 64 * 3) << id;
  }
  ASSERT_GT(ids.size(), static_cast<size_t>(kills));
}

TEST_F(Serve, KeysAndHostsAreChecked) {
  EXPECT_THAT(run(start({"serve", "--host", "0.0.0.0", "--port", "0"})).err, HasSubstr("without a key"));
  serve({"--api-key", "generate:a-secret-key", "--api-key", "admin:another-secret"});
  EXPECT_EQ(send("GET", "/healthz").status, 200);
  EXPECT_EQ(send("GET", "/api/v1/info").status, 401);
  EXPECT_EQ(send("GET", "/api/v1/info", nullptr, {{"authorization", "Bearer a-secret-key"}}).status, 200);
  EXPECT_EQ(send("POST", "/api/v1/models/unload", nullptr, {{"authorization", "Bearer a-secret-key"}}).status, 403);
  EXPECT_EQ(send("POST", "/api/v1/models/unload", nullptr, {{"authorization", "Bearer another-secret"}}).status, 202);
  EXPECT_EQ(send("GET", "/healthz", nullptr, {{"host", "evil.example"}}).status, 421);
  const Finished refused = run(start({"client", "jobs", "--url", url_, "--api-key", "wrong-secret"}));
  EXPECT_NE(refused.status, 0);
  EXPECT_EQ(run(start({"client", "jobs", "--url", url_, "--api-key", "a-secret-key"})).status, 0);
}

TEST_F(Serve, KeysCanBeMadeAndRevokedWhileItRuns) {
  const std::string data = (folder_ / "data").string();
  serve();
  EXPECT_EQ(send("GET", "/api/v1/queue").status, 200);
  const Finished added = run(start({"keys", "add", "laptop", "--data", data, "--json"}));
  ASSERT_EQ(added.status, 0) << added.err;
  const Json key = parse_json(added.out);
  const std::vector<HttpHeader> header = {{"authorization", "Bearer " + key["key"].get<std::string>()}};
  const auto becomes = [&](const std::vector<HttpHeader>& headers, int status) {
    for (int i = 0; i < 200; ++i, std::this_thread::sleep_for(std::chrono::milliseconds(50)))
      if (send("GET", "/api/v1/queue", nullptr, headers).status == status) return true;
    return false;
  };
  EXPECT_TRUE(becomes({}, 401));
  EXPECT_EQ(send("GET", "/api/v1/queue", nullptr, header).status, 200);
  EXPECT_EQ(send("POST", "/api/v1/models/unload", nullptr, header).status, 403);

  // The page signs in once; its cookie survives a restart.
  const HttpAnswer in = send("POST", "/api/v1/session", {{"key", key["key"]}});
  ASSERT_EQ(in.status, 204);
  const std::string cookie = in.header("set-cookie").value_or("");
  const std::vector<HttpHeader> page = {{"cookie", cookie.substr(0, cookie.find(';'))}};
  stop();
  serve();
  EXPECT_EQ(send("GET", "/api/v1/queue", nullptr, page).status, 200);
  EXPECT_EQ(send("POST", "/api/v1/queue/pause", nullptr, page).status, 403) << "without the header X-Flux2";

  ASSERT_EQ(run(start({"keys", "revoke", key["id"].get<std::string>(), "--data", data})).status, 0);
  ASSERT_EQ(run(start({"keys", "add", "other", "--data", data, "-q"})).status, 0);
  EXPECT_TRUE(becomes(page, 401));
  EXPECT_THAT(run(start({"keys", "list", "--data", data})).out, HasSubstr("other"));
}

TEST_F(Serve, RefusesWhatCannotFitIntoMemory) {
  serve({"--max-ram", "0.25"});
  Json large = small_job(1);
  large["width"] = large["height"] = 2048;
  for (int i = 0; i < 2; ++i) {
    const HttpAnswer answer = send("POST", "/api/v1/jobs", large);
    EXPECT_EQ(answer.status, 400) << answer.body;
    const Json error = parse_json(answer.body)["error"];
    EXPECT_EQ(error["code"], "does_not_fit");
    EXPECT_THAT(error["hint"].get<std::string>(), HasSubstr("smaller size"));
  }
  EXPECT_EQ(send("POST", "/v1/images/generations", {{"prompt", "x"}, {"size", "2048x2048"}}).status, 400);
  EXPECT_EQ(wait_for(ask("POST", "/api/v1/jobs", small_job(1))["id"])["state"], "completed");
}

TEST_F(Serve, TheClientNamesImagesByTheirFormat) {
  serve();
  Json job = small_job(1);
  job["output_format"] = "jpg";
  const std::string id = ask("POST", "/api/v1/jobs", job)["id"];
  const Finished watched = run(start({"client", "watch", id, "--url", url_, "-o", "got/", "-q"}));
  ASSERT_EQ(watched.status, 0) << watched.err;
  EXPECT_EQ(watched.out, "got/00001-1.jpg\n");
  const Finished wrong = run(start({"client", "watch", id, "--url", url_, "-o", "fox.png", "-q"}));
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.err, HasSubstr("the images of the job are jpg files: end the name fox.png with .jpg"));
  EXPECT_FALSE(fs::exists(folder_ / "fox.png"));
}

// A server closes the events of a client that is too slow, and all of them when it restarts.
TEST_F(Serve, TheClientWaitsForAJobWhoseEventsEnd) {
  const std::string image = "P6\n1 1\n255\nabc";
  int looks = 0;
  const HttpServer server([&](const ServedRequest& request) -> Reply {
    if (request.target.ends_with("/events"))
      return {.headers = {{"content-type", "text/event-stream"}}, .body = ": keep-alive\n\n"};
    if (request.target.ends_with("/images/0")) return {.body = image};
    if (++looks == 2) return {.status = 503, .body = R"({"error":{"message":"the server is stopping"}})"};
    Json job = {
        {"id", "job_1"}, {"state", looks < 3 ? "running" : "completed"}, {"error", nullptr}, {"request", {{"prompt", "x"}}}};
    job["images"] = Json::array({{{"url", "/images/0"}, {"seed", 1}, {"width", 1}, {"height", 1}}});
    return {.body = job.dump()};
  });
  const Finished watched = run(start({"client", "watch", "job_1", "--url", server.url(), "-o", "one.ppm", "-q"}));
  EXPECT_EQ(watched.status, 0) << watched.err;
  EXPECT_EQ(looks, 3);
  EXPECT_TRUE(fs::exists(folder_ / "one.ppm"));
}

// They were accepted, and nothing happened.
TEST_F(Serve, TheClientRefusesWhatOnlyTheLocalCommandDoes) {
  for (const char* option : {"--dry-run", "--repeat=2", "--sidecar", "--preview-file=p.png", "--show", "--from=a.png",
                             "--save-merged=m.safetensors", "--output-type=latent"}) {
    const Finished refused = run(start({"client", "generate", "a fox", option}));
    EXPECT_EQ(refused.status, 2) << option;
    EXPECT_THAT(refused.err, HasSubstr("unknown option")) << option;
  }
  write("prompts.txt", "a fox --s 3\n");
  EXPECT_THAT(run(start({"client", "generate", "--prompt-file", "prompts.txt"})).err,
              HasSubstr("client takes no options from a prompt file"));
}

TEST_F(Serve, MistakesGetAClearAnswer) {
  serve();
  const HttpAnswer wrong = send("POST", "/api/v1/jobs", {{"prompt", "x"}, {"widht", 64}, {"steps", "many"}});
  EXPECT_EQ(wrong.status, 400);
  EXPECT_EQ(parse_json(wrong.body)["error"]["fields"].size(), 2u) << wrong.body;
  EXPECT_EQ(send("POST", "/api/v1/jobs", {{"prompt", "x"}, {"model", "nothing-like-this"}}).status, 404);
  EXPECT_EQ(send("POST", "/api/v1/jobs", {{"prompt", "x"}, {"loras", {{{"name", "nothing"}}}}}).status, 404);
  EXPECT_EQ(send("GET", "/api/v1/jobs/job_00000000000000000000000000").status, 404);
  EXPECT_EQ(send("PUT", "/api/v1/jobs").status, 405);
  const Finished unreachable = run(start({"client", "jobs", "--url", "http://127.0.0.1:1"}));
  EXPECT_THAT(unreachable.err, HasSubstr("flux2 serve"));
}

// Two servers on one PostgreSQL, which goes away for a while.
TEST_F(Serve, SharesAPostgresDatabaseThatComesAndGoes) {
  SKIP_WITHOUT_POSTGRES();
  if (!parse_json(run(start({"version", "--json"})).out)["postgresql"].get<bool>()) GTEST_SKIP() << "this build has no libpq";
  std::string database = test_postgres().url("serve");
  database.insert(database.find('@'), ":a-secret-word");
  serve({"--database", database});
  const std::string first_url = url_;
  const auto first = std::move(server_);
  serve({"--database", database, "--no-worker"});
  const std::string id = ask("POST", "/api/v1/jobs", small_job(1))["id"];
  EXPECT_EQ(wait_for(id)["state"], "completed") << "the first server has run it";
  const Json answer = ask("POST", "/v1/images/generations", {{"prompt", "x"}, {"size", "64x64"}, {"steps", 2}, {"seed", 3}});
  EXPECT_EQ(answer["data"].size(), 1u) << "a client that waits learns of the end";

  test_postgres().stop();
  const auto becomes = [&](int status) {
    for (int i = 0; i < 200; ++i) {
      if (send("GET", "/readyz").status == status) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return false;
  };
  EXPECT_TRUE(becomes(503));
  EXPECT_EQ(send("GET", "/healthz").status, 200);
  const HttpAnswer away = send("GET", "/api/v1/jobs/" + id);
  EXPECT_EQ(away.status, 503);
  EXPECT_TRUE(away.header("retry-after"));
  EXPECT_EQ(parse_json(away.body)["error"]["code"], "database_unavailable");
  test_postgres().start();
  EXPECT_TRUE(becomes(200));
  EXPECT_EQ(job(id)["state"], "completed");
  EXPECT_EQ(wait_for(ask("POST", "/api/v1/jobs", small_job(2))["id"])["state"], "completed");

  const Finished key = run(start({"keys", "add", "laptop", "--database", database}));
  EXPECT_EQ(key.status, 0) << key.err;
  int status = 200;
  for (int i = 0; i < 200 && status != 401; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    status = send("GET", "/api/v1/jobs").status;
  }
  EXPECT_EQ(status, 401) << "a running server knows the new key";

  for (Subprocess* server : {first.get(), server_.get()}) {
    server->signal(SIGTERM);
    const Finished finished = server->wait(30);
    EXPECT_EQ(finished.status, 128 + SIGTERM);
    EXPECT_EQ(finished.err.find("a-secret-word"), std::string::npos) << finished.err;
  }
  server_.reset();
}

TEST_F(Serve, KeysHaveLimits) {
  const std::string data = (folder_ / "data").string();
  const Finished added = run(start({"keys", "add", "guest", "--rate", "4", "--queue", "1", "--data", data}));
  ASSERT_EQ(added.status, 0) << added.err;
  const std::string key = added.out.substr(0, added.out.find('\n'));
  serve();
  const std::vector<HttpHeader> headers = {{"authorization", "Bearer " + key}};
  Json long_job = small_job(1);
  long_job["steps"] = 200;
  EXPECT_EQ(send("POST", "/api/v1/jobs", long_job, headers).status, 202);
  const HttpAnswer full = send("POST", "/api/v1/jobs", small_job(2), headers);
  EXPECT_EQ(full.status, 429);
  EXPECT_THAT(full.body, HasSubstr("key_queue_full"));
  HttpAnswer fast;
  for (int i = 0; i < 4 && fast.status != 429; ++i) fast = send("GET", "/api/v1/queue", nullptr, headers);
  EXPECT_EQ(fast.status, 429);
  EXPECT_THAT(fast.body, HasSubstr("This key may send 4 requests a minute."));
  EXPECT_EQ(send("GET", "/healthz").status, 200) << "this needs no key and counts for none";
  EXPECT_NE(stop(), 0);
}

TEST_F(Serve, WritesAStructuredLogWithoutPrompts) {
  serve({"--log-format", "json"});
  Json body = small_job(1);
  body["prompt"] = "a very secret circle";
  const std::string id = ask("POST", "/api/v1/jobs", body)["id"];
  ASSERT_EQ(wait_for(id)["state"], "completed");
  server_->signal(SIGTERM);
  const Finished finished = server_->wait(30);
  server_.reset();
  int requests = 0;
  std::vector<std::string> states;
  std::stringstream lines(finished.err);
  for (std::string line; std::getline(lines, line);) {
    const Json json = parse_json(line);
    ASSERT_TRUE(json.contains("time")) << line;
    if (json["kind"] == "request" && json["path"] == "/api/v1/jobs") {
      ++requests;
      EXPECT_EQ(json["status"], 202);
      EXPECT_EQ(json["method"], "POST");
      EXPECT_THAT(std::string(json["request_id"]), testing::StartsWith("req_"));
    }
    if (json["kind"] == "job") states.push_back(json["state"]);
  }
  EXPECT_EQ(requests, 1);
  EXPECT_EQ(states, (std::vector<std::string>{"queued", "started", "completed"}));
  EXPECT_THAT(finished.err, testing::Not(HasSubstr("secret")));
}

}  // namespace
}  // namespace flux2::test
