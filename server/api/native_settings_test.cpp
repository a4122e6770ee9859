#include "server/api/native_settings.h"

#include "server/api/test_api.h"

namespace flux2 {
namespace {

class SettingsRoutes : public ApiTest {
 protected:
  SettingsRoutes() {
    file_.list = [this] { return settings_; };
    file_.check = [](const std::string& key, const Json& value) {
      check(key != "serve.max-batch" || value.is_null() || value.is_number_integer(), "{} must be a number", key);
    };
    file_.write = [this](const std::string& key, const Json& value) {
      written_.push_back(key);
      for (ServerSetting& setting : settings_)
        if (setting.key == key) setting.value = value.is_null() ? setting.fallback : value, setting.origin = "file";
    };
    add_settings_routes(router_, api_, file_);
  }

  std::shared_ptr<FakePeer> patch(const Json& body) {
    ServerRequest request{.method = "PATCH", .path = "/api/v1/settings"};
    request.headers = {{"content-type", "application/json"}};
    request.body = body.dump();
    return ask(std::move(request));
  }

  std::vector<ServerSetting> settings_ = {{"openai.alias-openai-models", "on", "on", "default"},
                                          {"sdapi.distilled-step-cap", 8, 8, "default"},
                                          {"sdapi.img2img", "edit", "edit", "default"},
                                          {"serve.allow-url-fetch", "off", "off", "default"},
                                          {"serve.api-key", "a secret", nullptr, "file", true},
                                          {"serve.cancel-on-disconnect", "on", "on", "default"},
                                          {"serve.max-batch", 4, 4, "default"},
                                          {"serve.port", 9000, 8190, "command"}};
  std::vector<std::string> written_;
  SettingsFile file_;
};

TEST_F(SettingsRoutes, ListsThemWithoutSecrets) {
  const Json json = body_of(*get("/api/v1/settings"));
  EXPECT_EQ(json["serve.max-batch"], Json({{"value", 4}, {"default", 4}, {"origin", "default"}, {"restart", true}}));
  EXPECT_EQ(json["sdapi.img2img"]["restart"], false);
  EXPECT_EQ(json["serve.api-key"], Json({{"set", true}, {"origin", "file"}, {"restart", true}}));
  EXPECT_EQ(json.dump().find("a secret"), std::string::npos);
}

TEST_F(SettingsRoutes, ChangesTakeEffectAtOnce) {
  const auto peer = patch({{"openai.alias-openai-models", "off"},
                           {"serve.cancel-on-disconnect", "off"},
                           {"sdapi.img2img", "strength"},
                           {"sdapi.distilled-step-cap", 20},
                           {"serve.allow-url-fetch", "https"}});
  EXPECT_EQ(status_of(*peer), 200);
  EXPECT_EQ(body_of(*peer)["sdapi.distilled-step-cap"]["value"], 20);
  EXPECT_FALSE(api_.alias_openai_models);
  EXPECT_FALSE(api_.cancel_on_disconnect);
  EXPECT_EQ(api_.sdapi_img2img, ApiContext::Img2Img::Strength);
  EXPECT_EQ(api_.sdapi_distilled_step_cap, 20);
  EXPECT_EQ(api_.url_fetch, ApiContext::UrlFetch::Https);
  EXPECT_EQ(status_of(*patch({{"openai.alias-openai-models", nullptr}, {"serve.allow-url-fetch", nullptr}})), 200);
  EXPECT_TRUE(api_.alias_openai_models);
  EXPECT_EQ(api_.url_fetch, ApiContext::UrlFetch::Off);
}

TEST_F(SettingsRoutes, NothingIsWrittenUnlessAllIsRight) {
  EXPECT_EQ(status_of(*patch({{"sdapi.img2img", "strength"}, {"serve.max-batch", "many"}})), 400);
  EXPECT_EQ(status_of(*patch({{"sdapi.img2img", "strength"}, {"serve.nothing", 1}})), 400);
  EXPECT_EQ(status_of(*patch({{"serve.api-key", "mine"}})), 403);
  EXPECT_EQ(status_of(*patch({{"serve.port", 1}})), 409);
  EXPECT_TRUE(written_.empty());
  EXPECT_EQ(api_.sdapi_img2img, ApiContext::Img2Img::Edit);
}

}  // namespace
}  // namespace flux2
