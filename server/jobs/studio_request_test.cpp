#include "server/jobs/studio_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/jobs/job_request.h"
#include "server/jobs/job_settings.h"
#include "server/jobs/merge_key.h"
#include "server/store/ids.h"
#include "server/store/project_store.h"
#include "server/store/test_folder.h"

namespace flux2 {
namespace {

using testing::HasSubstr;

class StudioRequest : public testing::Test {
 protected:
  StudioRequest() { context_.limits = Limits::for_server(); }

  std::string project(const Json& settings) {
    Project made;
    made.id = new_id();
    made.name = "Book";
    made.settings = settings;
    ProjectStore(assets_.database()).insert(made);
    return "prj_" + made.id;
  }
  Json check(const Json& request, const std::string& kind = "generate") {
    return check_job_request(request, kind, assets_, context_, warnings_);
  }

  AssetStore assets_{server_test_folder()};
  AppContext context_;
  std::vector<std::string> warnings_;
};

TEST_F(StudioRequest, AProjectFillsWhatARequestLeavesOut) {
  const std::string book = project(
      {{"width", 512}, {"height", 256}, {"seed", 9}, {"model", "pico"}, {"negative", "blur"}, {"style_prompt", "ink drawing"}});
  const Json checked = check({{"prompt", "a fox"}, {"project_id", book}});
  EXPECT_EQ(checked["width"], 512);
  EXPECT_EQ(checked["height"], 256);
  EXPECT_EQ(checked["seed"], 9);
  EXPECT_EQ(checked["model"], "pico");
  EXPECT_EQ(checked["negative"], "blur");
  EXPECT_EQ(checked["prompt"], "a fox, ink drawing") << "what the worker uses";
  EXPECT_EQ(request_as_sent(checked)["prompt"], "a fox");
  EXPECT_FALSE(request_as_sent(checked).contains(kResolution));
  EXPECT_EQ(resolution_report(checked)["prompt"], "a fox, ink drawing");
  EXPECT_EQ("prj_" + project_in_request(checked), book);
  EXPECT_EQ(settings_of_job(checked, assets_, context_)["prompt"].values, std::vector<std::string>{"a fox, ink drawing"});

  const Json own = check({{"prompt", "a fox"}, {"project_id", book}, {"width", 128}, {"seed", 1}, {"style", false}});
  EXPECT_EQ(own["width"], 128);
  EXPECT_FALSE(own.contains("height")) << "a size is not mixed from two places";
  EXPECT_EQ(own["seed"], 1);
  EXPECT_EQ(own["prompt"], "a fox");
  EXPECT_FALSE(own.contains(kResolution));
}

TEST_F(StudioRequest, ProjectsThatDoNotExistAreRefused) {
  const auto refusal = [&](const Json& request) {
    try {
      check(request);
    } catch (const HttpError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_THAT(refusal({{"prompt", "x"}, {"project_id", "prj_" + new_id()}}), HasSubstr("project_id: project not found"));
  EXPECT_THAT(refusal({{"prompt", "x"}, {"project_id", "../x"}}), HasSubstr("project not found"));
  EXPECT_THAT(refusal({{"prompt", "x"}, {"project_id", 5}}), HasSubstr("project_id"));
  const std::string book = project(Json::object());
  ProjectStore(assets_.database()).trash(id_without_prefix(book, "prj_"), ProjectStore::Images::Trash, 1);
  EXPECT_THAT(refusal({{"prompt", "x"}, {"project_id", book}}), HasSubstr("trash"));
  EXPECT_EQ(project_in_request(check({{"prompt", "x"}, {"project_id", "default"}})), "");
  EXPECT_THAT(refusal({{"prompt", "x"}, {"resolution", {{"sent_prompt", "y"}}}}), HasSubstr("resolution"))
      << "only this server writes it";
}

TEST_F(StudioRequest, JobsOfTwoProjectsMayShareABatch) {
  const std::string a = project({{"style_prompt", "ink"}}), b = project({{"style_prompt", "oil"}});
  const Json base = {{"prompt", "x"}, {"width", 128}, {"height", 128}};
  Json in_a = base, in_b = base;
  in_a["project_id"] = a, in_b["project_id"] = b;
  EXPECT_EQ(merge_key_of(check(in_a)), merge_key_of(check(in_b)));
}

}  // namespace
}  // namespace flux2
