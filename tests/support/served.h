#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"
#include "net/http.h"
#include "tests/support/program.h"

namespace flux2::test {

// Tests of a running `flux2 serve`.
class Served : public Cli {
 protected:
  using Clock = std::chrono::steady_clock;

  // Waits until the process says its address.
  void listen(Start how) {
    server_ = std::make_unique<Subprocess>(how);
    ASSERT_TRUE(server_->wait_for_error_text("stops it")) << server_->wait(10).err;
    const std::string& said = server_->so_far().err;
    const size_t begin = said.find("http://");
    ASSERT_NE(begin, said.npos) << said;
    url_ = said.substr(begin, said.find_first_of("; \n", begin) - begin);
  }
  int stop(int signal = SIGTERM) {
    server_->signal(signal);
    const Finished finished = server_->wait(60);
    EXPECT_FALSE(finished.timed_out);
    server_.reset();
    return finished.status;
  }

  HttpAnswer send(const std::string& method, const std::string& path, const Json& body = nullptr,
                  std::vector<HttpHeader> headers = {}) const {
    HttpRequest request;
    request.method = method;
    request.url = url_ + path;
    request.headers = std::move(headers);
    request.idle_timeout_s = 300;
    if (!body.is_null()) {
      request.headers.push_back({"content-type", "application/json"});
      request.body = body.dump();
    }
    return client_.send(request);
  }
  // The answer must be a success; while the database is away it is asked for again.
  Json ask(const std::string& method, const std::string& path, const Json& body = nullptr) const {
    HttpAnswer answer = send(method, path, body);
    for (int i = 0; i < 150 && answer.status == 503; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      answer = send(method, path, body);
    }
    EXPECT_TRUE(answer.ok()) << method << " " << path << ": " << answer.status << " " << answer.failure << answer.body;
    return answer.body.empty() ? Json() : parse_json(answer.body);
  }

  Json job(const std::string& id) const { return ask("GET", "/api/v1/jobs/" + id); }
  static bool is_final(const Json& job) {
    return job["state"] == "completed" || job["state"] == "failed" || job["state"] == "cancelled";
  }
  // Asks until what is shown there satisfies the condition.
  template <class Condition>
  Json wait_until(const std::string& path, Condition&& condition, double seconds) const {
    const auto end = Clock::now() + std::chrono::duration<double>(seconds);
    Json now;
    while (Clock::now() < end) {
      now = ask("GET", path);
      if (condition(now)) return now;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    ADD_FAILURE() << path << " stayed " << now.dump();
    return now;
  }
  // Until the job is in that state or has ended.
  Json wait_for(const std::string& id, const std::string& state = "", double seconds = 120) const {
    return wait_until(
        "/api/v1/jobs/" + id, [&](const Json& now) { return now["state"] == state || is_final(now); }, seconds);
  }

  HttpClient client_;
  std::string url_;
  std::unique_ptr<Subprocess> server_;
};

}  // namespace flux2::test
