#include "server/log_lines.h"

#include <gtest/gtest.h>

namespace flux2 {
namespace {

RequestLine line() {
  RequestLine line;
  line.id = "req_1";
  line.method = "POST";
  line.path = "/api/v1/jobs";
  line.remote_address = "127.0.0.1";
  line.status = 202;
  line.bytes = 120;
  line.milliseconds = 1.23456;
  return line;
}

TEST(LogLines, ARequest) {
  Json json = request_line_json(line());
  EXPECT_TRUE(json.erase("time"));
  EXPECT_EQ(json, (Json{{"level", "info"},
                        {"kind", "request"},
                        {"request_id", "req_1"},
                        {"method", "POST"},
                        {"path", "/api/v1/jobs"},
                        {"status", 202},
                        {"bytes", 120},
                        {"ms", 1.23},
                        {"remote", "127.0.0.1"}}));
}

TEST(LogLines, AStreamOfAKeyAboutAJob) {
  RequestLine stream = line();
  stream.is_stream = true;
  stream.key = "laptop";
  stream.job = "job_A";
  const Json json = request_line_json(stream);
  EXPECT_FALSE(json.contains("bytes"));
  EXPECT_EQ(json["stream"], true);
  EXPECT_EQ(json["key"], "laptop");
  EXPECT_EQ(json["job"], "job_A");
  const std::string text = log_line_text(json);
  EXPECT_NE(text.find(" POST /api/v1/jobs 202 stream 1.2 ms req_1 key laptop job_A"), std::string::npos) << text;
}

TEST(LogLines, AJobSaysWhyItFailedButNotWhatItWasAsked) {
  const Event event{.id = 1,
                    .name = "job.failed",
                    .data = R"({"job_id":"job_A","error":{"code":"model_missing","message":"secret prompt"}})",
                    .job = "A"};
  const Json json = job_line_json(event);
  EXPECT_EQ(json["level"], "warning");
  EXPECT_EQ(json["state"], "failed");
  EXPECT_EQ(json["code"], "model_missing");
  EXPECT_EQ(json.dump().find("secret"), std::string::npos);
  EXPECT_NE(log_line_text(json).find(" job_A failed: model_missing"), std::string::npos);
}

TEST(LogLines, AMessage) {
  const Json json = message_line_json("warning", "the disk is full");
  EXPECT_EQ(json["message"], "the disk is full");
  EXPECT_TRUE(log_line_text(json).ends_with(" the disk is full"));
}

}  // namespace
}  // namespace flux2
