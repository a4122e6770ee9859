#pragma once

#include <memory>
#include <string>

#include "server/api/native_models.h"
#include "server/api/test_api.h"
#include "tests/support/paths.h"

namespace flux2 {

// The routes of models, over a data folder with one autoencoder that is not registered yet.
class ModelRoutesTest : public ApiTest {
 protected:
  ModelRoutesTest()
      : allowed_({folder_ / "models"}),
        installs_(app_, queue_, allowed_),
        models_api_{
            .api = api_, .installs = installs_, .folders = allowed_, .defaults = defaults_, .changed = [this] { ++changes_; }} {
    add_model_routes(router_, models_api_);
    std::filesystem::create_directories(folder_ / "models/vae");
    std::filesystem::copy_file(std::filesystem::path(test::pico_folder()) / "ae.safetensors", file());
  }

  std::filesystem::path file() const { return folder_ / "models/vae/ae.safetensors"; }
  std::shared_ptr<FakePeer> send(const char* method, const std::string& path, const Json& body = nullptr) {
    ServerRequest request{.method = method, .path = path};
    request.headers = {{"content-type", "application/json"}};
    if (!body.is_null()) request.body = body.dump();
    if (const size_t query = path.find('?'); query != path.npos) {
      request.path = path.substr(0, query);
      const std::string rest = path.substr(query + 1);
      request.query = {{rest.substr(0, rest.find('=')), rest.substr(rest.find('=') + 1)}};
    }
    return ask(std::move(request));
  }
  std::string registered() {
    const Json found = body_of(*post("/api/v1/models/scan", {{"add", true}}));
    EXPECT_EQ(found["items"].size(), 1u) << found.dump();
    return found["items"][0]["key"];
  }

  AllowedFolders allowed_;
  ModelInstalls installs_;
  Settings defaults_;
  int changes_ = 0;
  ModelsApi models_api_;
};

}  // namespace flux2
