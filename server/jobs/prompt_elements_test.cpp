#include "server/jobs/prompt_elements.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "image/write_image.h"
#include "server/jobs/job_request.h"
#include "server/jobs/studio_request.h"
#include "server/store/asset_catalog.h"
#include "server/store/ids.h"
#include "server/store/project_store.h"
#include "server/store/test_folder.h"

namespace flux2 {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class PromptElements : public testing::Test {
 protected:
  PromptElements() { context_.limits = Limits::for_server(); }

  std::string project(const std::string& name) {
    Project made;
    made.id = new_id();
    made.name = name;
    ProjectStore(assets_.database()).insert(made);
    return made.id;
  }
  std::string image(int seed) {
    Image pixels(32, 32, 3);
    pixels.pixels[0] = static_cast<uint8_t>(seed);
    return assets_.put(encode_png(pixels), {.kind = "image"}).id;
  }
  Element element(const std::string& name, const std::string& description, const std::string& project,
                  std::vector<std::string> images = {}, const std::string& type = "character") {
    Element made;
    made.id = new_id();
    made.project = project;
    made.name = name;
    made.type = type;
    made.trigger = "@" + name;
    made.description = description;
    made.images = std::move(images);
    ElementStore(assets_.database()).insert(made);
    return made;
  }
  Json check(Json request, const std::string& kind = "generate") {
    warnings_.clear();
    return check_job_request(request, kind, assets_, context_, warnings_);
  }
  std::string prompt_of(const std::string& prompt, Json more = Json::object()) {
    more["prompt"] = prompt;
    return check(more)["prompt"];
  }
  std::string refusal(const Json& request) {
    try {
      check(request);
    } catch (const HttpError& e) {
      return e.what();
    }
    return {};
  }
  static std::vector<std::string> references(const Json& checked) {
    return checked.contains("references") ? checked["references"].get<std::vector<std::string>>() : std::vector<std::string>();
  }

  AssetStore assets_{server_test_folder()};
  AppContext context_;
  std::vector<std::string> warnings_;
};

TEST_F(PromptElements, ATriggerBecomesNameAndDescription) {
  element("Hero", "a tall woman in red", "");
  EXPECT_EQ(prompt_of("@hero rides. @HERO laughs"), "Hero (a tall woman in red) rides. Hero laughs");
  EXPECT_EQ(prompt_of("@Heroine rides"), "@Heroine rides");
  EXPECT_EQ(prompt_of("me@Hero.org"), "me@Hero.org");
  EXPECT_EQ(prompt_of("@Hero's hat", {{"element_text", "name"}}), "Hero's hat");
  EXPECT_EQ(prompt_of("@Hero rides", {{"element_text", "keep"}}), "@Hero rides");
  EXPECT_EQ(prompt_of("@Hero rides", {{"scan_triggers", false}}), "@Hero rides");
  element("Герой", "старый", "");
  EXPECT_EQ(prompt_of("@герой, утро"), "Герой (старый), утро");
}

TEST_F(PromptElements, ImagesOfElementsAreReferences) {
  const std::string face = image(1), back = image(2), own = image(3);
  const Element hero = element("Hero", "tall", "", {face, back});
  const Json checked = check({{"prompt", "@Hero rides"}});
  EXPECT_THAT(references(checked), ElementsAre("asset:" + face)) << "max_refs is 1";
  EXPECT_EQ(checked["prompt"], "Hero (tall) rides") << "one element needs no number";
  EXPECT_EQ(checked["match"], "off");
  const Json report = resolution_report(checked);
  EXPECT_EQ(report["references"],
            Json::parse(R"([{"asset_id":"ast_)" + face + R"(","source":"element","element_id":"elm_)" + hero.id + R"("}])"));
  EXPECT_EQ(report["matched"][0]["start"], 0);
  EXPECT_EQ(report["matched"][0]["end"], 5);
  const Json sent = request_as_sent(checked);
  EXPECT_EQ(sent["prompt"], "@Hero rides");
  EXPECT_FALSE(sent.contains("references"));
  EXPECT_FALSE(sent.contains("match"));

  const Json with_own = check({{"prompt", "@Hero rides"}, {"references", {"asset:" + own}}, {"number_refs", true}});
  EXPECT_THAT(references(with_own), ElementsAre("asset:" + own, "asset:" + face));
  EXPECT_EQ(with_own["prompt"], "Hero (the person in image 2; tall) rides");
  EXPECT_EQ(request_as_sent(with_own)["references"], Json::parse(R"(["asset:)" + own + R"("])"));
  EXPECT_FALSE(with_own.contains("match"));
}

TEST_F(PromptElements, ReferencesAreNumberedWhenThereAreSeveral) {
  const std::string face = image(1), tower = image(2), sword = image(3), ink = image(4);
  element("Hero", "tall", "", {face});
  element("Tower", "", "", {tower, face}, "location");
  element("Sword", "rusty", "", {sword}, "object");
  element("Ink", "loose lines", "", {ink}, "style");
  const Json checked = check({{"prompt", "@Sword, @Hero at @Tower in @Ink. @Sword!"}});
  EXPECT_EQ(
      checked["prompt"],
      "Sword (the object in image 1; rusty), Hero (the person in image 2; tall) at Tower (the place in image 3) in Ink (the "
      "style of image 4; loose lines). Sword!");
  EXPECT_THAT(references(checked), ElementsAre("asset:" + sword, "asset:" + face, "asset:" + tower, "asset:" + ink));
  EXPECT_EQ(check({{"prompt", "@Sword, @Hero"}, {"number_refs", false}})["prompt"], "Sword (rusty), Hero (tall)");
}

TEST_F(PromptElements, TheSameImageIsUsedOnce) {
  const std::string face = image(1);
  Element hero = element("Hero", "", "", {face});
  element("Twin", "", "", {face});
  const Json checked = check({{"prompt", "@Hero and @Twin"}});
  EXPECT_THAT(references(checked), ElementsAre("asset:" + face));
  EXPECT_EQ(checked["prompt"], "Hero (the person in image 1) and Twin (the person in image 1)");
  hero.max_refs = 2;
  hero.images = {face, image(5)};
  ElementStore(assets_.database()).save(hero);
  EXPECT_EQ(check({{"prompt", "@Hero and @Twin"}})["prompt"],
            "Hero (the person in images 1 and 2) and Twin (the person in image 1)");
}

TEST_F(PromptElements, WhatDoesNotFitIsNamed) {
  Element crowd = element("Crowd", "", "");
  crowd.max_refs = 20;
  for (int i = 0; i < 18; ++i) crowd.images.push_back(image(i + 1));
  ElementStore(assets_.database()).save(crowd);
  EXPECT_EQ(references(check({{"prompt", "@Crowd"}})).size(), 16u);
  ASSERT_EQ(warnings_.size(), 2u);
  EXPECT_THAT(warnings_[1], HasSubstr(crowd.images[17]));
  const Element hero = element("Hero", "", "", {image(30), image(31)});
  AssetCatalog(assets_.database()).trash(hero.images[0], 5);
  EXPECT_THAT(references(check({{"prompt", "@Hero"}})), ElementsAre("asset:" + hero.images[1]));
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_THAT(warnings_[0], HasSubstr("in the trash"));
}

TEST_F(PromptElements, OwnElementsWinOverSharedOnes) {
  const std::string book = project("Book"), film = project("Film");
  element("Hero", "shared", "");
  element("Hero", "of the book", book);
  element("Owl", "of the film", film);
  const Json in_book = {{"project_id", "prj_" + book}};
  EXPECT_EQ(prompt_of("@Hero", in_book), "Hero (of the book)");
  EXPECT_EQ(prompt_of("@Hero"), "Hero (shared)");
  EXPECT_EQ(prompt_of("@Hero", {{"project_id", "prj_" + film}}), "Hero (shared)");
  EXPECT_EQ(prompt_of("@Hero", {{"project_id", "prj_" + film}, {"scan_scope", "project"}}), "@Hero");
  const Json other = check({{"prompt", "@Owl"}, {"project_id", "prj_" + book}});
  EXPECT_EQ(other["prompt"], "@Owl");
  EXPECT_EQ(resolution_report(other)["suggestions"][0]["project_id"], "prj_" + film);
  EXPECT_EQ(prompt_of("@Owl", {{"project_id", "prj_" + book}, {"scan_scope", "all"}}), "Owl (of the film)");
  EXPECT_THAT(refusal({{"prompt", "x"}, {"scan_scope", "world"}}), HasSubstr("scan_scope"));
}

TEST_F(PromptElements, ARequestMayNameElements) {
  const Element hero = element("Hero", "tall", ""), owl = element("Owl", "", "", {image(1)});
  EXPECT_EQ(prompt_of("a forest", {{"elements", {"hero", "@Owl"}}}), "a forest, Hero (tall), Owl");
  EXPECT_EQ(prompt_of("", {{"elements", {"elm_" + hero.id, "Hero"}}}), "Hero (tall)");
  EXPECT_EQ(prompt_of("@Hero in a forest", {{"elements", {"hero"}}, {"scan_triggers", false}}), "Hero (tall) in a forest");
  EXPECT_THAT(refusal({{"prompt", "x"}, {"elements", {"Nobody"}}}), HasSubstr("elements[0]: element \"Nobody\" not found"));
  EXPECT_THAT(refusal({{"prompt", "x"}, {"elements", "Hero"}}), HasSubstr("elements"));
  EXPECT_THAT(references(check({{"prompt", "a forest"}, {"elements", {"Owl"}}}, "edit")), ElementsAre("asset:" + owl.images[0]));
}

TEST_F(PromptElements, AdaptersOfElementsAreUsedOnce) {
  Element hero = element("Hero", "", "");
  hero.loras = {{{"name", "hero-lora"}, {"weight", 0.7}}};
  ElementStore(assets_.database()).save(hero);
  const Json checked = check({{"prompt", "@Hero"}});
  EXPECT_EQ(checked["loras"], hero.loras);
  EXPECT_FALSE(request_as_sent(checked).contains("loras"));
  const Json own = {{{"name", "hero-lora"}, {"weight", 0.2}}};
  EXPECT_EQ(check({{"prompt", "@Hero"}, {"loras", own}})["loras"], own) << "what the request says counts";
}

TEST_F(PromptElements, APromptThatBecomesTooLongIsRefused) {
  context_.limits.request.prompt_bytes = 40;
  element("Hero", "a very long description of how this hero looks", "");
  EXPECT_THAT(refusal({{"prompt", "@Hero"}}), HasSubstr("at most 40"));
}

TEST_F(PromptElements, TheCanvasIsImageOne) {
  const std::string canvas = image(9);
  element("Hero", "", "", {image(1)});
  const Json request = {{"prompt", "@Hero"}, {"canvas", "asset:" + canvas}, {"mask_box", {"0,0,16,16"}}, {"number_refs", true}};
  EXPECT_EQ(check(request, "inpaint")["prompt"], "Hero (the person in image 2)");
}

}  // namespace
}  // namespace flux2
