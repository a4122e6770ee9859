// Jobs that make a text, and images whose prompt the model's own text encoder rewrites, with the bundled model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "app/local_rewriter.h"
#include "app/prompt_rewriting.h"
#include "app/safety.h"
#include "server/jobs/test_worker.h"

namespace flux2 {
namespace {

using testing::HasSubstr;

class WorkerText : public WorkerTest {
 protected:
  WorkerText() : WorkerTest({{"upsample-max-tokens", "6"}, {"upsample-model", "of-a-service"}}) {}

  std::string submit_text(const Json& more = Json::object()) {
    Json request = {{"kind", "rewrite"}, {"prompt", "a circle"}, {"provider", "local"}, {"seed", 2}};
    request.update(more);
    return queue_.submit({.request = request, .kind = request["kind"], .client_ref = "task"}).job.id;
  }
  std::string submit_image(const Json& more = Json::object()) {
    Json members = {{"steps", 1}, {"seed", 2}, {"upsample", "local"}};
    members.update(more);
    return queue_image(members);
  }
  // What the same model writes without a server.
  std::string written(uint64_t seed) {
    RequestSpec spec = spec_of(defaults_);
    spec.upsample = "local";
    spec.upsample_model.reset();
    const auto rewriter = open_rewriter(spec, context_, true, choose_model(spec, context_));
    return rewrite_prompt(*rewriter, {.prompt = "a circle", .seed = seed}, 10000, {}, {}).prompt;
  }
};

TEST_F(WorkerText, ARewrittenPromptIsTheResultOfAJob) {
  start();
  const Job job = finished(submit_text());
  ASSERT_EQ(job.state, "completed") << job.error.dump();
  EXPECT_EQ(job.result["prompt"], written(2)) << "as without a server";
  EXPECT_EQ(job.result["provider"], "local");
  EXPECT_EQ(job.result["model"], "pico text encoder");
  EXPECT_EQ(job.result["tokens"], 6);
  EXPECT_THAT(job.result["warnings"].dump(), HasSubstr("was cut"));
  EXPECT_TRUE(job.images.empty());
  const Json shown = job_to_json(job, *store_);
  EXPECT_EQ(shown["kind"], "rewrite");
  EXPECT_EQ(shown["result"]["prompt"], job.result["prompt"]);
  // Another seed writes something else, and the same one the same.
  EXPECT_NE(finished(submit_text({{"seed", 3}})).result["prompt"], job.result["prompt"]);
  EXPECT_EQ(finished(submit_text()).result["prompt"], job.result["prompt"]);
  EXPECT_EQ(finished(submit_text({{"max_tokens", 3}})).result["tokens"], 3);
}

TEST_F(WorkerText, TextAndImagesTakeTurns) {
  start();
  const Job text = finished(submit_text()), image = finished(submit_image());
  ASSERT_EQ(image.state, "completed") << image.error.dump();
  EXPECT_EQ(image.result["rewritten_prompt"], text.result["prompt"]);
  EXPECT_EQ(job_to_json(image, *store_)["rewritten_prompt"], text.result["prompt"]);
  EXPECT_EQ(image.resolved["prompt"], "a circle");
  EXPECT_EQ(finished(submit_text()).result["prompt"], text.result["prompt"]);
  EXPECT_EQ(worker_->totals().completed, 3);
  EXPECT_EQ(worker_->totals().steps, 1) << "tokens are no steps";
}

TEST_F(WorkerText, ListenersSeeTheTextGrow) {
  std::vector<Json> told;
  std::vector<std::string> ends;
  events_.listen([&](const Event& event) {
    if (event.name == "text.progress") told.push_back(parse_json(event.data));
    if (event.name == "job.completed") ends.push_back(parse_json(event.data)["type"]);
  });
  start();
  const Job job = finished(submit_text());
  worker_.reset();
  ASSERT_FALSE(told.empty());
  EXPECT_EQ(told[0]["job_id"], "job_" + job.id);
  EXPECT_EQ(told[0]["task_id"], "task");
  EXPECT_EQ(told[0]["max_tokens"], 6);
  EXPECT_FALSE(told[0]["text"].get<std::string>().empty());
  EXPECT_THAT(ends, testing::ElementsAre("text"));
}

TEST_F(WorkerText, AStopInTheMiddleEndsTheJobAtTheNextToken) {
  std::atomic<bool> writes = false;
  const int64_t listener = events_.listen([&](const Event& event) { writes = writes || event.name == "text.progress"; });
  start();
  const std::string id = submit_text({{"max_tokens", 4096}, {"seed", 1}, {"prompt", std::string(2000, 'a') + " circle"}});
  while (!writes) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  events_.leave(listener);  // the worker tells events until the test ends, and `writes` does not live that long
  queue_.cancel(id);
  const Job job = finished(id);
  EXPECT_EQ(job.state, "cancelled");
  EXPECT_FALSE(job.result.contains("prompt"));
  EXPECT_EQ(finished(submit_text()).state, "completed") << "the worker goes on";
}

TEST_F(WorkerText, TheTimeLimitAlsoEndsReadingThePrompt) {
  RequestSpec spec = spec_of(defaults_);
  spec.upsample = "local";
  spec.upsample_model.reset();
  spec.upsample_timeout = 1e-9;
  const auto rewriter = open_rewriter(spec, context_, true, choose_model(spec, context_));
  int layers = 0;
  const auto count = [&] { return ++layers < 0; };
  try {
    rewriter->answer({.prompt = "a circle", .seed = 1}, count);
    FAIL() << "there was no time";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("wrote nothing within"));
  }
  EXPECT_EQ(layers, 1);
}

TEST_F(WorkerText, APromptLongerThanAConversationMayBeIsRefused) {
  start();
  const Job job = finished(submit_text({{"prompt", std::string(100'000, 'a')}}));
  EXPECT_EQ(job.error["code"], "invalid_request") << job.error.dump();
  EXPECT_THAT(job.error["message"].get<std::string>(), HasSubstr("too long for the language model"));
}

TEST_F(WorkerText, ErrorsAreSentences) {
  start();
  const Job blind = finished(submit_text({{"kind", "describe"}, {"prompt", ""}, {"references", Json::array()}}));
  EXPECT_EQ(blind.state, "failed");
  const Asset asset = assets_.put(encode_png(Image(32, 32, 3)), {.kind = "reference"});
  const Job described = finished(submit_text({{"kind", "describe"}, {"references", {"asset:" + asset.id}}}));
  EXPECT_EQ(described.state, "failed");
  EXPECT_EQ(described.error["code"], "incompatible");
  EXPECT_THAT(described.error["message"].get<std::string>(), HasSubstr("cannot look at images"));
  const Job unknown = finished(submit_text({{"model", "nothing-like-this"}}));
  EXPECT_EQ(unknown.error["code"], "model_not_found");
  // Quotes that the answer lacks: alone an error, for an image the prompt as it was.
  const Job quotes = finished(submit_text({{"prompt", "a sign \"OPEN\""}}));
  EXPECT_EQ(quotes.error["code"], "incompatible");
  const Job kept = finished(submit_image({{"prompt", "a sign \"OPEN\""}}));
  EXPECT_EQ(kept.state, "completed");
  EXPECT_THAT(kept.result["warnings"].dump(), HasSubstr("used as it is"));
  EXPECT_TRUE(job_to_json(kept, *store_)["rewritten_prompt"].is_null());
  const Job strict = finished(submit_image({{"prompt", "a sign \"OPEN\""}, {"strict", true}}));
  EXPECT_EQ(strict.state, "failed");
}

TEST_F(WorkerText, SafetyChecksSeeTheTextBeforeAnybodyElse) {
  std::vector<std::string> checked;
  std::string flagged;
  SafetySettings settings;
  settings.text = SafetySettings::Text::Qwen;
  SafetyModels models;
  models.prompt = [&](const std::string& prompt) {
    checked.push_back(prompt);
    return prompt == flagged ? YesNo{.yes = 1, .no = 0} : YesNo{.yes = 0, .no = 1};
  };
  const std::string text = written(2);
  context_.safety = std::make_shared<Safety>(settings, context_, models);
  bool shown = false;
  events_.listen([&](const Event& event) {
    if (event.name == "text.progress") shown = shown || parse_json(event.data).contains("text");
  });
  start();
  EXPECT_EQ(finished(submit_text()).state, "completed");
  EXPECT_THAT(checked, testing::ElementsAre("a circle", text));
  flagged = written(3);
  const Job refused = finished(submit_text({{"seed", 3}}));
  EXPECT_EQ(refused.error["code"], "content_policy_violation");
  EXPECT_FALSE(refused.result.contains("prompt"));
  const Job image = finished(submit_image({{"seed", 3}}));
  EXPECT_EQ(image.error["code"], "content_policy_violation");
  worker_.reset();
  EXPECT_FALSE(shown) << "text that was not checked yet";
}

}  // namespace
}  // namespace flux2
