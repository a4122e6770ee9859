#include "server/api/model_catalog.h"

#include <gmock/gmock.h>

#include "server/api/test_api.h"

namespace flux2 {
namespace {

using Catalog = ApiTest;

TEST_F(Catalog, FindsModelsByEveryNameButNoPath) {
  const InstalledModel pico = models_.main_models().at(0);
  for (const std::string& name : {pico.name, pico.title(), pico.hash, pico.sha256, std::string("pico [0000000000]")})
    EXPECT_EQ(models_.name_of(name), "pico") << name;
  const std::string path = bundled_model(app_.environment).string();
  EXPECT_THROW(models_.find(path), HttpError);
  EXPECT_THROW(models_.name_of("nobody"), HttpError);
}

TEST_F(Catalog, TheDefaultComesFromTheServersSettings) {
  EXPECT_EQ(models_.find("").id, "pico");
  RequestSpec spec;
  spec.model = bundled_model(app_.environment).string();  // the server itself may be given a path
  models_.set_default(spec);
  EXPECT_EQ(models_.find("").id, "pico");
  spec.model = "nobody";
  models_.set_default(spec);
  try {
    models_.find("");
    FAIL() << "no error";
  } catch (const HttpError& e) {
    EXPECT_EQ(e.code, "model_not_found");
    EXPECT_THAT(e.what(), testing::HasSubstr("There is no model to use"));
  }
}

}  // namespace
}  // namespace flux2
