#pragma once

#include <string>
#include <vector>

#include "server/api/native.h"
#include "server/api/studio.h"
#include "server/api/test_api.h"

namespace flux2 {

// The routes of the studio, with tests as their client and their worker.
class StudioTest : public ApiTest {
 protected:
  StudioTest() {
    add_job_routes(router_, api_);
    add_asset_routes(router_, api_);
    add_gallery_routes(router_, api_);
    add_project_routes(router_, api_);
    add_element_routes(router_, api_);
    add_archive_routes(router_, api_);
    add_shot_routes(router_, api_);
    add_mask_routes(router_, api_);
  }

  Json send(const std::string& method, const std::string& path, const Json& body = nullptr, int status = 200) {
    ServerRequest request{.method = method, .path = path};
    if (const size_t mark = path.find('?'); mark != path.npos) {
      request.path = path.substr(0, mark);
      std::string rest = path.substr(mark + 1) + "&";
      for (size_t end = rest.find('&'); end != rest.npos; rest.erase(0, end + 1), end = rest.find('&')) {
        const std::string pair = rest.substr(0, end);
        request.query.push_back({pair.substr(0, pair.find('=')), pair.substr(pair.find('=') + 1)});
      }
    }
    request.headers = {{"content-type", "application/json"}, {"host", "localhost:1"}};
    if (!body.is_null()) request.body = body.dump();
    const auto peer = ask(std::move(request));
    EXPECT_EQ(status_of(*peer), status) << method << " " << path << " " << (peer->response ? peer->response->body : "");
    return peer->response && !peer->response->body.empty() && peer->response->content_type == "application/json"
               ? Json::parse(peer->response->body)
               : Json();
  }

  // A finished job with one image; the job as clients see it.
  Json generated(Json request) {
    request["width"] = 64, request["height"] = 64;
    return finished(send("POST", "/api/v1/jobs", request, 202));
  }
  // Plays the worker for the job that waits.
  Json finished(const Json& job) {
    Job claimed = claim();
    EXPECT_EQ(job["id"].get<std::string>(), "job_" + claimed.id);
    Image image(64, 64, 3);
    image.pixels[0] = static_cast<uint8_t>(++made_);
    const Asset asset = assets_.put(encode_png(image), {.kind = "image", .job = claimed.id});
    const JobImage result{.asset = asset.id, .seed = claimed.request.value("seed", uint64_t{0}), .width = 64, .height = 64};
    store_->add_image(claimed.id, "worker", result);
    claimed.images.push_back(result);
    claimed.state = "completed";
    end(claimed);
    return send("GET", "/api/v1/jobs/" + job["id"].get<std::string>());
  }
  static std::string asset_in(const Json& job) { return job["images"][0]["asset_id"]; }

  std::vector<std::string> found(const std::string& query) {
    std::vector<std::string> ids;
    const Json answer = send("GET", "/api/v1/assets?" + query);
    for (const Json& item : answer["items"]) ids.push_back(item["id"]);
    return ids;
  }

  int made_ = 0;
};

}  // namespace flux2
