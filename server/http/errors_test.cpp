#include "server/http/errors.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace flux2 {
namespace {

std::string header_of(const HttpResponse& response, const std::string& name) {
  for (const auto& [key, value] : response.headers)
    if (key == name) return value;
  return "";
}

TEST(HttpErrors, NativeListsAllProblems) {
  HttpError error(400, "invalid_request", "The request has 2 problems.");
  error.fields = {{"width", "must be at least 64"}, {"colour", "is not known"}};
  error.hint = "see /api/v1/openapi.json";
  const HttpResponse response = error_response(Family::Native, error, "req_1");
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(response.body,
            R"({"error":{"code":"invalid_request","message":"The request has 2 problems.","fields":[{"path":"width",)"
            R"("message":"must be at least 64"},{"path":"colour","message":"is not known"}],)"
            R"("hint":"see /api/v1/openapi.json","request_id":"req_1"}})");
  EXPECT_EQ(error_response(Family::Native, HttpError(404, "not_found", "no"), "r").body,
            R"({"error":{"code":"not_found","message":"no","request_id":"r"}})");
  EXPECT_EQ(error_response(Family::Native, HttpError(400, "invalid_value", "width: too small", "width"), "r").body,
            R"({"error":{"code":"invalid_value","message":"width: too small","fields":[{"path":"width","message":"too small"}],)"
            R"("request_id":"r"}})");
}

TEST(HttpErrors, OpenAiBodyAndRetryRules) {
  const auto answer = [](int status, const std::string& code, const std::string& param = {}) {
    return error_response(Family::OpenAi, HttpError(status, code, "text", param), "r");
  };
  EXPECT_EQ(answer(400, "invalid_value", "size").body,
            R"({"error":{"message":"text","type":"invalid_request_error","param":"size","code":"invalid_value"}})");
  EXPECT_EQ(answer(429, "queue_full").body,
            R"({"error":{"message":"text","type":"rate_limit_error","param":null,"code":"queue_full"}})");
  EXPECT_EQ(header_of(answer(429, "queue_full"), "retry-after"), "2");
  EXPECT_EQ(header_of(answer(429, "queue_full"), "x-should-retry"), "");
  for (const char* code : {"out_of_memory", "model_load_failed"})
    EXPECT_EQ(header_of(answer(503, code), "x-should-retry"), "false") << code;
  EXPECT_EQ(header_of(answer(503, "shutting_down"), "x-should-retry"), "");
  EXPECT_EQ(header_of(answer(400, "invalid_value"), "x-should-retry"), "");
  const HttpResponse internal = answer(500, "internal");
  EXPECT_EQ(header_of(internal, "x-should-retry"), "false");
  EXPECT_NE(internal.body.find(R"("code":"internal_error")"), std::string::npos);
  EXPECT_EQ(answer(409, "cancelled").status, 400) << "clients repeat a request after 409";
}

TEST(HttpErrors, A1111DjAndPage) {
  const HttpError error(422, "invalid_value", "Sampler not found");
  EXPECT_EQ(error_response(Family::A1111, error, "r").body,
            R"({"error":"invalid_value","detail":"Sampler not found","body":"","errors":"Sampler not found"})");
  EXPECT_EQ(error_response(Family::Dj, error, "r").body, R"({"detail":"Sampler not found"})");
  const HttpResponse page = error_response(Family::Page, error, "r");
  EXPECT_EQ(page.body, R"({"error":{"code":"invalid_value","message":"Sampler not found","request_id":"r"}})");
  EXPECT_EQ(page.status, 422);
}

TEST(HttpErrors, HeadersOfTheErrorWin) {
  HttpError error(429, "queue_full", "full");
  error.headers = {{"retry-after", "30"}};
  const HttpResponse response = error_response(Family::Native, error, "r");
  EXPECT_EQ(header_of(response, "retry-after"), "30");
  EXPECT_EQ(std::ranges::count_if(response.headers, [](const auto& h) { return h.first == "retry-after"; }), 1);
}

TEST(HttpErrors, EveryErrorCodeHasAStatus) {
  const std::vector<std::pair<ErrorCode, int>> table = {
      {ErrorCode::Internal, 500}, {ErrorCode::InvalidArgument, 400}, {ErrorCode::NotFound, 404},
      {ErrorCode::BadFile, 400},  {ErrorCode::Incompatible, 400},    {ErrorCode::OutOfMemory, 503},
      {ErrorCode::Device, 500},   {ErrorCode::CannotWrite, 500},     {ErrorCode::Network, 502},
      {ErrorCode::Refused, 400},  {ErrorCode::Cancelled, 409}};
  for (const auto& [code, status] : table) EXPECT_EQ(http_error_of(Error(code, "x")).status, status) << name_of(code);
  const HttpError spelled = http_error_of(
      Error(ErrorCode::OutOfMemory, "too big", Hint("try {0} or {1}", {set_option("quant", "fp8"), set_option("width")})));
  EXPECT_EQ(spelled.hint, R"(try "quant": "fp8" or "width")");
}

TEST(HttpErrors, ThrownThingsAreTranslated) {
  const auto of = [](auto thrown) { return http_error_of(std::make_exception_ptr(thrown)); };
  EXPECT_EQ(of(HttpError(418, "teapot", "t")).code, "teapot");
  EXPECT_EQ(of(Error(ErrorCode::NotFound, "x")).status, 404);
  EXPECT_EQ(of(std::bad_alloc()).status, 503);
  EXPECT_EQ(of(std::runtime_error("secret path")).status, 500);
  EXPECT_EQ(std::string(of(std::runtime_error("secret path")).what()).find("secret"), std::string::npos);
  EXPECT_EQ(of(42).code, "internal");
}

}  // namespace
}  // namespace flux2
