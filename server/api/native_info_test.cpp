#include "server/api/native.h"
#include "server/api/openapi.h"
#include "server/api/test_api.h"

namespace flux2 {
namespace {

class NativeInfo : public ApiTest {
 protected:
  NativeInfo() { add_info_routes(router_, api_, defaults_, nullptr); }

  // The answer of a server on a CPU that may use so much memory.
  Json plan(const char* max_ram_gib, int side, const char* prompt = "a fox") {
    SettingLayer layer;
    layer["device"] = {{"cpu"}, "test"};
    layer["max-ram"] = {{max_ram_gib}, "test"};
    defaults_ = {};
    defaults_.add(std::move(layer));
    return body_of(*post("/api/v1/plan", {{"prompt", prompt}, {"width", side}, {"height", side}, {"steps", 2}, {"count", 4}}));
  }
  Json small() { return plan("64", 64); }
  Json large() { return plan("0.1", 1024); }

  Settings defaults_;
};

TEST_F(NativeInfo, APlanSaysWhatRunsWhereAndWhetherItFits) {
  const Json fits = small();
  EXPECT_EQ(fits["model"], "pico");
  EXPECT_EQ(fits["device"].get<std::string>().rfind("cpu", 0), 0u) << fits["device"];
  EXPECT_FALSE(fits["placement"].get<std::string>().empty());
  EXPECT_EQ(fits["fits"], true);
  EXPECT_EQ(fits["limit_gib"], 64.0);
  EXPECT_EQ(fits["available"], int64_t{64} << 30);
  EXPECT_EQ(fits["images"], 4);
  EXPECT_FALSE(fits.contains("needs"));

  const Json tight = large();
  EXPECT_EQ(tight["fits"], false);
  EXPECT_NEAR(tight["limit_gib"].get<double>(), 0.1, 1e-6);
  EXPECT_GT(tight["needs"].get<int64_t>(), tight["available"].get<int64_t>());
  EXPECT_TRUE(tight["suggest"].is_array());
}

TEST_F(NativeInfo, APlanCountsTheImagesOfWildcards) {
  EXPECT_EQ(plan("64", 64, "a cat")["images"], 4);
  EXPECT_EQ(plan("64", 64, "a {cat|dog}")["images"], 4);
}

TEST_F(NativeInfo, TheOpenApiDocumentDescribesEveryMemberOfAPlan) {
  const Json document = openapi_document(router_);
  EXPECT_EQ(document["paths"]["/api/v1/plan"]["post"]["responses"]["2XX"]["content"]["application/json"]["schema"]["$ref"],
            "#/components/schemas/Plan");
  const Json& schema = document["components"]["schemas"]["Plan"];
  const Json fits = small();
  for (const Json& answer : {fits, large()})
    for (const auto& [name, value] : answer.items()) EXPECT_TRUE(schema["properties"].contains(name)) << name;
  for (const Json& name : schema["required"]) EXPECT_TRUE(fits.contains(name.get<std::string>())) << name;
}

}  // namespace
}  // namespace flux2
