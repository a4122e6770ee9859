#include "server/api/openai_answer.h"

#include <gmock/gmock.h>

#include "base/base64.h"
#include "image/read_image.h"
#include "image/write_image.h"
#include "server/api/openai_stream.h"
#include "server/api/waiting_client.h"

namespace flux2 {
namespace {

constexpr const char* kSomeId = "01J9ZZZZZZZZZZZZZZZZZZZZZZ";

TEST(OpenAiAnswer, UsageCountsWhatTheWorkerCounted) {
  Job job;
  job.result = Json::parse(R"({"usage":{"text_tokens":37,"reference_tokens":64,"image_tokens":4096}})");
  EXPECT_EQ(openai_usage(job), Json::parse(R"({"input_tokens":101,"input_tokens_details":{"text_tokens":37,"image_tokens":64},
    "output_tokens":4096,"output_tokens_details":{"image_tokens":4096,"text_tokens":0},"total_tokens":4197})"));
  job.result = nullptr;
  EXPECT_EQ(openai_usage(job)["total_tokens"], 0);
}

TEST(OpenAiAnswer, FileNamesGoBothWays) {
  Job job;
  job.id = kSomeId;
  const std::string name = openai_file_name(job, {.index = 3}, "jpeg");
  EXPECT_EQ(name, std::string(kSomeId) + "-3.jpeg");
  const auto file = openai_file_named(name);
  ASSERT_TRUE(file);
  EXPECT_EQ(file->job, kSomeId);
  EXPECT_EQ(file->index, 3);
  for (const char* bad : {"", "x", "x-1.png", "01J9ZZZZZZZZZZZZZZZZZZZZZZ.png", "01J9ZZZZZZZZZZZZZZZZZZZZZZ--1.png",
                          "01J9ZZZZZZZZZZZZZZZZZZZZZZ-1x.png", "01J9ZZZZZZZZZZZZZZZZZZZZZZ-99999999999.png"})
    EXPECT_FALSE(openai_file_named(bad)) << bad;
}

TEST(OpenAiAnswer, PartialEventsHaveEveryMember) {
  const OpenAiAnswer answer{.output_format = "png", .quality = "low", .event = "image_edit"};
  Json event = openai_partial_event(answer, "AAAA", 1, 0, false, 512, 256);
  EXPECT_EQ(event["type"], "image_edit.partial_image");
  EXPECT_EQ(event["partial_image_index"], 1);
  EXPECT_EQ(event["size"], "512x256");
  for (const char* name : {"b64_json", "created_at", "background", "output_format", "quality"}) EXPECT_TRUE(event.contains(name));
  EXPECT_FALSE(event.contains("index"));
  EXPECT_EQ(openai_partial_event(answer, "AAAA", 1, 2, true, 512, 256)["index"], 2);
}

TEST(OpenAiAnswer, ErrorsOfJobsKeepTheirMeaning) {
  const std::vector<std::tuple<const char*, int, const char*>> cases = {
      {"out_of_memory", 503, "out_of_memory"},
      {"model_not_found", 404, "model_not_found"},
      {"invalid_request", 400, "invalid_value"},
      {"content_policy_violation", 400, "content_policy_violation"},
      {"invalid_image_file", 400, "invalid_image_file"},
      {"damaged_file", 503, "model_load_failed"},
      {"interrupted", 503, "shutting_down"},
      {"internal", 500, "internal"}};
  for (const auto& [code, status, expected] : cases) {
    Job job;
    job.state = "failed";
    job.error = {{"code", code}, {"message", "why"}, {"hint", "do this"}};
    const HttpError error = error_of_job(job);
    EXPECT_EQ(error.status, status) << code;
    EXPECT_EQ(error.code, expected) << code;
    EXPECT_STREQ(error.what(), "why");
    EXPECT_EQ(error.hint, "do this");
    const Json event = openai_error_event(error);
    EXPECT_EQ(event["type"], "error");
    EXPECT_TRUE(event["error"].contains("type"));
  }
  Job cancelled;
  cancelled.state = "cancelled";
  EXPECT_EQ(error_of_job(cancelled).code, "cancelled");
}

TEST(OpenAiAnswer, PreviewsBecomeTheFormatThatWasAskedFor) {
  const auto jpeg = encode_jpeg(Image(512, 256, 3));
  JobQueue::Preview preview{.bytes = std::string(reinterpret_cast<const char*>(jpeg.data()), jpeg.size()),
                            .mime = "image/jpeg",
                            .width = 512,
                            .height = 256};
  EXPECT_EQ(base64_decode(preview_as(preview, "jpeg", 512)), jpeg);
  const auto png = base64_decode(preview_as(preview, "png", 128));
  EXPECT_EQ(sniff_format(png), ImageFormat::Png);
  const Image image = read_image(png);
  EXPECT_EQ(image.width, 128);
  EXPECT_EQ(image.height, 64);
}

}  // namespace
}  // namespace flux2
