// Training over HTTP, with the bundled model and a few small images.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <map>
#include <thread>

#include "base/json.h"
#include "image/read_image.h"
#include "net/http.h"
#include "tests/support/served.h"
#include "tests/support/training_images.h"

namespace flux2::test {
namespace {

using testing::HasSubstr;

class ServeTraining : public Served {
 protected:
  void SetUp() override {
    Cli::SetUp();
    write_bars(folder_ / "images", 8);
  }

  void serve(std::vector<std::string> more = {}) {
    std::vector<std::string> words = {"serve",         "--port",         "0",         "--data", (folder_ / "data").string(),
                                      "--model-roots", folder_.string(), "--profile", "exact"};
    words.insert(words.end(), more.begin(), more.end());
    listen(start(words));
  }
  // Waits until a member of a run or a job satisfies a condition, or it has failed.
  template <class Condition>
  Json wait_until(const std::string& path, Condition&& condition, double seconds = 240) const {
    return Served::wait_until(
        path, [&](const Json& now) { return condition(now) || now["state"] == "failed"; }, seconds);
  }
  Json wait_for(const std::string& path, const std::string& state) const {
    return wait_until(path, [&](const Json& now) { return now["state"] == state; });
  }
  Json wait_for_step(const std::string& path, int64_t step) const {
    return wait_until(path, [&](const Json& now) { return now["step"] >= step || now["state"] == "completed"; });
  }

  Json request(const std::string& name, int64_t steps, const Json& more = Json::object()) const {
    Json options = {{"max_train_steps", steps}, {"network_dim", 2}, {"network_alpha", 2},
                    {"learning_rate", 1e-3},    {"seed", 7},        {"timestep_sampling", "flux2_shift"}};
    options.update(more);
    return {{"name", name},
            {"dataset",
             {{"config",
               {{"general", {{"resolution", 64}, {"caption_extension", ".txt"}, {"batch_size", 2}}},
                {"datasets",
                 {{{"image_directory", (folder_ / "images").string()}, {"cache_directory", (folder_ / "cache").string()}}}}}}}},
            {"options", options}};
  }
  std::string begin(const Json& body) const {
    return "/api/v1/training/" + ask("POST", "/api/v1/training", body)["id"].get<std::string>();
  }
  Json picture(const Json& more = Json::object()) const {
    Json job = {{"prompt", "bars number 1"}, {"width", 64}, {"height", 64}, {"steps", 2}, {"seed", 3}};
    job.update(more);
    return job;
  }

  // The options of request() as words of the command line.
  static std::vector<std::string> option_words(int64_t steps) {
    return {"--network_dim",       "2",           "--network_alpha", "2", "--learning_rate",   "1e-3",
            "--timestep_sampling", "flux2_shift", "--seed",          "7", "--max_train_steps", std::to_string(steps)};
  }
  Start client(std::vector<std::string> words) const {
    words.insert(words.begin(), "client");
    words.insert(words.end(), {"--url", url_});
    return start(words);
  }
  // What `flux2 train` makes of the same settings: the adapter and the losses.
  std::map<std::string, std::vector<float>> locally_trained(int64_t steps, std::vector<double>& losses) const {
    write("data.json", R"({"general": {"resolution": 64, "caption_extension": ".txt", "batch_size": 2},
      "datasets": [{"image_directory": "images", "cache_directory": "cache"}]})");
    std::vector<std::string> words = {"train",         "data.json", "--output_dir", "local",
                                      "--output_name", "bars",      "--profile",    "exact"};
    const std::vector<std::string> options = option_words(steps);
    words.insert(words.end(), options.begin(), options.end());
    const Finished done = flux2(words);
    EXPECT_EQ(done.status, 0) << done.err;
    std::ifstream log(folder_ / "local" / "bars.jsonl");
    for (std::string line; std::getline(log, line);)
      if (const Json event = parse_json(line); event["event"] == "step") losses.push_back(event["loss"].get<double>());
    return trained_values(folder_ / "local" / "bars.safetensors");
  }
  fs::path folder_of(const Json& run) const { return folder_ / "data" / run["folder"].get<std::string>(); }
};

TEST_F(ServeTraining, MakesWayForImagesAndLearnsTheSame) {
  constexpr int64_t kSteps = 90;
  serve({"--preempt-wait", "0.1"});
  Json dry = request("bars", kSteps);
  dry["dry"] = true;
  const Json forecast = ask("POST", "/api/v1/training", dry);
  EXPECT_EQ(forecast["items"], 8) << forecast.dump();
  EXPECT_EQ(forecast["batches_per_epoch"], 4);
  EXPECT_EQ(forecast["steps"], kSteps);
  EXPECT_EQ(forecast["buckets"][0]["count"], 8);
  EXPECT_GT(forecast["s_per_step"].get<double>(), 0);
  EXPECT_EQ(ask("GET", "/api/v1/training")["items"].size(), 0u);

  const std::string run = begin(request("bars", kSteps,
                                        {{"save_every_n_steps", 10},
                                         {"save_last_n_steps", 30},
                                         {"sample_every_n_steps", 20},
                                         {"sample_prompts", {"bars number 1 --w 64 --h 64 --s 2 --d 5"}}}));
  EXPECT_EQ(send("POST", "/api/v1/training", request("bars", kSteps)).status, 409) << "the name is taken";
  const Json started = wait_for_step(run, 11);
  ASSERT_EQ(started["state"], "running") << started.dump();

  // A checkpoint can be used while the run trains, and the job that uses it makes the run pause.
  EXPECT_EQ(send("POST", run + "/checkpoints/11/try").status, 404);
  const std::string adapter = ask("POST", run + "/checkpoints/10/try")["adapter"];
  EXPECT_EQ(adapter, "run:bars@10");
  const Json waits = ask("POST", "/api/v1/jobs", picture());
  EXPECT_THAT(waits["message"].get<std::string>(), HasSubstr("preempt")) << waits.dump();
  const Json tried = ask("POST", "/api/v1/jobs", picture({{"preempt", true}, {"loras", {{{"name", adapter}, {"weight", 3}}}}}));
  const std::string first = "/api/v1/jobs/" + tried["id"].get<std::string>();
  ASSERT_EQ(wait_for(first, "completed")["state"], "completed");
  const Json plain = ask("POST", "/api/v1/jobs", picture({{"preempt", true}}));
  const std::string second = "/api/v1/jobs/" + plain["id"].get<std::string>();
  ASSERT_EQ(wait_for(second, "completed")["state"], "completed");
  EXPECT_NE(send("GET", first + "/images/0").body, send("GET", second + "/images/0").body) << "the adapter changes the image";
  EXPECT_EQ(ask("GET", "/api/v1/jobs/" + waits["id"].get<std::string>())["state"], "queued") << "it did not ask to preempt";

  // Save and stop, then go on.
  wait_for_step(run, 40);
  ask("POST", run + "/pause");
  const Json paused = wait_for(run, "paused");
  EXPECT_LT(paused["step"].get<int64_t>(), kSteps);
  EXPECT_EQ(wait_for("/api/v1/jobs/" + waits["id"].get<std::string>(), "completed")["state"], "completed")
      << "a paused run leaves the device to others";
  EXPECT_EQ(send("POST", run + "/pause").status, 409);
  ask("PATCH", run, {{"options", {{"sample_every_n_steps", 50}}}});
  EXPECT_EQ(send("PATCH", run, {{"options", {{"seed", 3}}}}).status, 400);
  ask("POST", run + "/resume");
  wait_for_step(run, paused["step"].get<int64_t>() + 15);
  ask("POST", run + "/stop", {{"save", true}});
  EXPECT_EQ(wait_for(run, "stopped")["state"], "stopped");
  ask("POST", run + "/resume");
  const Json done = wait_for(run, "completed");
  ASSERT_EQ(done["state"], "completed") << done.dump();
  EXPECT_EQ(done["step"], kSteps);

  std::vector<double> losses;
  const auto local = locally_trained(kSteps, losses);
  EXPECT_EQ(trained_values(folder_of(done) / "bars.safetensors"), local) << "interruptions change nothing";
  const Json metrics = ask("GET", run + "/metrics?keys=loss&max=10000");
  EXPECT_EQ(metrics["loss"].get<std::vector<double>>(), losses);
  EXPECT_EQ(ask("GET", run + "/metrics?keys=loss,lr&max=10")["step"].size(), 10u);

  const Json samples = ask("GET", run + "/samples")["items"];
  ASSERT_GE(samples.size(), 2u);
  EXPECT_EQ(samples[0]["step"], 20);
  const std::string sample = send("GET", samples[0]["url"]).body;
  EXPECT_EQ(read_image(std::as_bytes(std::span(sample))).width, 64);
  const Json checkpoints = ask("GET", run + "/checkpoints")["items"];
  EXPECT_EQ(checkpoints.back()["step"], kSteps);
  EXPECT_GT(checkpoints.front()["step"], 10) << "older ones are removed";
  EXPECT_EQ(ask("POST", run + fmt::format("/checkpoints/{}/keep", kSteps))["kept"], true);
  EXPECT_EQ(send("DELETE", run + fmt::format("/checkpoints/{}", kSteps)).status, 204);
  EXPECT_EQ(send("POST", run + fmt::format("/checkpoints/{}/try", kSteps)).status, 404);
  EXPECT_EQ(ask("POST", "/api/v1/jobs", picture({{"loras", {{{"name", adapter}}}}}))["state"], "queued") << "a tried one stays";
  EXPECT_EQ(stop(), 128 + SIGTERM);
}

TEST_F(ServeTraining, SurvivesTheEndOfTheServer) {
  constexpr int64_t kSteps = 60;
  serve({"--preempt-wait", "0.1", "--max-ram", "8"});  // with a limit, the state is saved before another job runs
  const std::string run = begin(request("bars", kSteps, {{"save_every_n_steps", 10}}));
  wait_for_step(run, 5);
  const Json job = ask("POST", "/api/v1/jobs", picture({{"preempt", true}}));
  EXPECT_EQ(wait_for("/api/v1/jobs/" + job["id"].get<std::string>(), "completed")["state"], "completed");
  const Json before = wait_for_step(run, 20);
  EXPECT_EQ(stop(), 128 + SIGTERM);
  serve();
  const Json after = wait_for_step(run, before["step"].get<int64_t>() + 15);
  EXPECT_EQ(after["job_id"], before["job_id"]) << "the job went back to the queue";
  server_->signal(SIGKILL);
  server_->wait(10);
  serve();
  const Json done = wait_for(run, "completed");
  ASSERT_EQ(done["state"], "completed") << done.dump();
  EXPECT_NE(done["job_id"], before["job_id"]) << "a killed job is lost, its run is not";
  std::vector<double> losses;
  EXPECT_EQ(trained_values(folder_of(done) / "bars.safetensors"), locally_trained(kSteps, losses));
  EXPECT_EQ(ask("GET", run + "/metrics?keys=loss&max=10000")["loss"].get<std::vector<double>>(), losses);
}

TEST_F(ServeTraining, TheClientLosesNoImagePrompt) {
  serve();
  write_bars(folder_ / "conditions", 8);
  const auto sent = [&](const std::string& keys, std::vector<std::string> more) {
    write("data.json",
          R"({"general": {"resolution": 64, "caption_extension": ".txt"}, "datasets": [{"image_directory": "images")" + keys +
              "}]}");
    more.insert(more.begin(), {"train", "data.json", "--output_name", "bars"});
    const Finished done = run(client(more));
    EXPECT_NE(done.status, 0);
    return done.err;
  };
  // The server refuses the number of steps when it has the images.
  EXPECT_THAT(sent(R"(, "image_prompt_directory": "conditions")", {"--max_train_steps", "0"}), HasSubstr("sent 16 images"));
  EXPECT_THAT(sent(R"(, "image_prompt_group": "folder")", {}), HasSubstr("cannot be sent to a server"));
  write("prompts.txt", "bars --ip images/bars0.png\n");
  EXPECT_THAT(sent("", {"--sample_prompts", "prompts.txt"}), HasSubstr("an image of this machine cannot be sent to a server"));
}

TEST_F(ServeTraining, TheClientSendsImagesAndGetsTheSameAdapter) {
  constexpr int64_t kSteps = 24;
  serve();
  std::vector<double> losses;
  const auto local = locally_trained(kSteps, losses);
  std::vector<std::string> words = {"train",         "data.json", "--output_dir",         "got",
                                    "--output_name", "bars",      "--save_every_n_steps", "10"};
  const std::vector<std::string> options = option_words(kSteps);
  words.insert(words.end(), options.begin(), options.end());
  const Finished done = run(client(words));
  ASSERT_EQ(done.status, 0) << done.err;
  EXPECT_EQ(done.out, "got/bars.safetensors\n");
  EXPECT_THAT(done.err, HasSubstr("sent 8 images"));
  EXPECT_THAT(done.err, HasSubstr(fmt::format("step {}/{}  loss ", kSteps, kSteps)));
  EXPECT_EQ(trained_values(folder_ / "got/bars.safetensors"), local) << "as if it had been trained here";

  EXPECT_THAT(run(client({"runs"})).out, HasSubstr("completed"));
  const std::string saved = run(client({"checkpoints", "bars"})).out;
  for (const char* step : {"  10  ", "  20  ", "  24  "}) EXPECT_THAT(saved, HasSubstr(step));
  const Finished ten = run(client({"download", "bars", "--step", "10", "-o", "ten.safetensors"}));
  EXPECT_EQ(ten.status, 0) << ten.err;
  EXPECT_NE(trained_values(folder_ / "ten.safetensors"), local);
  EXPECT_THAT(run(client({"download", "bars", "--step", "11"})).err, HasSubstr("no checkpoint at step 11"));
  EXPECT_THAT(run(client({"attach", "nothing"})).err, HasSubstr("training run \"nothing\" not found"));
  EXPECT_THAT(run(client({"train"})).err, HasSubstr("name a dataset"));
  EXPECT_THAT(run(client(words)).err, HasSubstr("another training run has the name")) << "names are unique";
}

TEST_F(ServeTraining, TheClientDetachesAndComesBack) {
  serve();
  std::vector<std::string> words = {"train", "--remote-dataset", (folder_ / "images").string(), "--output_name", "bars"};
  const std::vector<std::string> options = option_words(5000);
  words.insert(words.end(), options.begin(), options.end());
  Subprocess first(client(words));
  ASSERT_TRUE(first.wait_for_error_text("  loss ")) << first.wait(10).err;
  first.signal(SIGINT);
  const Finished detached = first.wait(20);
  EXPECT_EQ(detached.status, 128 + SIGINT);
  EXPECT_THAT(detached.err, HasSubstr("the run continues on the server"));
  EXPECT_THAT(detached.err, HasSubstr("`flux2 client attach run_"));

  const std::string run_address = "/api/v1/training/" + ask("GET", "/api/v1/training")["items"][0]["id"].get<std::string>();
  const int64_t step = ask("GET", run_address)["step"];
  EXPECT_GT(wait_for_step(run_address, step + 5)["step"], step);
  EXPECT_EQ(run(client({"pause", "bars"})).status, 0);
  wait_for(run_address, "paused");
  EXPECT_THAT(run(client({"attach", "bars"})).err, HasSubstr("`flux2 client resume run_"));
  EXPECT_EQ(run(client({"resume", "bars"})).status, 0);
  Subprocess again(client({"attach", "bars", "-o", "got"}));
  ASSERT_TRUE(again.wait_for_error_text("  loss ")) << again.wait(10).err;
  EXPECT_EQ(run(client({"stop", "bars"})).status, 0);
  const Finished stopped = again.wait(60);
  EXPECT_EQ(stopped.status, 0) << stopped.err;
  EXPECT_EQ(stopped.out, "got/bars.safetensors\n");
  EXPECT_FALSE(trained_values(folder_ / "got/bars.safetensors").empty());
}

TEST_F(ServeTraining, DatasetsAndMistakes) {
  serve();
  const std::string images = (folder_ / "images").string();
  const Json listed = ask("GET", "/api/v1/training/datasets?path=" + images);
  ASSERT_EQ(listed["items"].size(), 8u) << listed.dump();
  EXPECT_EQ(listed["items"][0]["caption"], "bars number 0");
  ask("PUT", "/api/v1/training/datasets/caption", {{"path", images + "/bars0.png"}, {"caption", "a new caption"}});
  EXPECT_EQ(bytes("images/bars0.txt"), "a new caption");
  EXPECT_EQ(ask("POST", "/api/v1/training/datasets/check", {{"path", images}})["ok"], true);

  const HttpAnswer there = send("GET", "/api/v1/training/datasets?path=/etc/passwd");
  const HttpAnswer nowhere = send("GET", "/api/v1/training/datasets?path=/etc/nothing-like-this");
  EXPECT_EQ(there.status, 400);
  EXPECT_EQ(parse_json(there.body)["error"]["message"], parse_json(nowhere.body)["error"]["message"]);
  EXPECT_EQ(send("PUT", "/api/v1/training/datasets/caption", {{"path", "/etc/x.png"}, {"caption", ""}}).status, 400);

  Json wrong = request("bars", 5);
  wrong["model"] = "nothing-like-this";
  EXPECT_EQ(send("POST", "/api/v1/training", wrong).status, 404);
  wrong = request("bars", 5, {{"output_dir", "/tmp"}, {"learnig_rate", 1}});
  const HttpAnswer refused = send("POST", "/api/v1/training", wrong);
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(parse_json(refused.body)["error"]["fields"].size(), 2u) << refused.body;
  EXPECT_EQ(send("GET", "/api/v1/training/run_00000000000000000000000000").status, 404);
  EXPECT_EQ(send("POST", "/api/v1/jobs", picture({{"loras", {{{"name", "run:bars@1"}}}}})).status, 404);

  // A run that waits can be stopped, and nothing of it is left to run.
  ask("POST", "/api/v1/queue/pause");
  const std::string run = begin(request("waits", 5));
  EXPECT_EQ(ask("POST", run + "/stop", {{"save", false}})["state"], "stopped");
  EXPECT_EQ(ask("GET", "/api/v1/queue")["lanes"]["gpu"]["queued"], 0);
}

}  // namespace
}  // namespace flux2::test
