#include <gmock/gmock.h>

#include "server/api/test_studio.h"

namespace flux2 {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using NativeStudioTest = StudioTest;

TEST_F(NativeStudioTest, ProjectsAreMadeRenamedAndDeleted) {
  const Json book = send("POST", "/api/v1/projects", {{"name", " Book "}, {"width", 512}, {"style_prompt", "ink"}}, 201);
  EXPECT_EQ(book["name"], "Book");
  EXPECT_EQ(book["height"], nullptr);
  const std::string id = book["id"], path = "/api/v1/projects/" + id;
  EXPECT_EQ(send("PATCH", path, {{"name", "Film"}, {"width", nullptr}})["width"], nullptr);
  EXPECT_EQ(send("GET", path)["name"], "Film");
  EXPECT_EQ(send("GET", "/api/v1/projects")["items"].size(), 2u);
  const Json wrong = send("POST", "/api/v1/projects", {{"nam", "x"}, {"width", 3}}, 400);
  EXPECT_EQ(wrong["error"]["fields"].size(), 3u) << wrong.dump();
  send("DELETE", path, nullptr, 204);
  send("PATCH", path, {{"name", "x"}}, 404);
  EXPECT_NE(send("GET", path)["deleted_at"], nullptr);
  EXPECT_EQ(send("GET", "/api/v1/projects?trash=1")["items"].size(), 1u);
  EXPECT_EQ(send("POST", path + "/restore")["deleted_at"], nullptr);
  send("DELETE", "/api/v1/projects/default", nullptr, 409);
  EXPECT_EQ(send("PATCH", "/api/v1/projects/default", {{"name", "Mine"}})["name"], "Mine");
  send("PATCH", "/api/v1/projects/default", {{"width", 64}}, 400);
  send("GET", "/api/v1/projects/prj_x", nullptr, 404);
}

TEST_F(NativeStudioTest, JobsAndImagesBelongToAProject) {
  const std::string book = send("POST", "/api/v1/projects", {{"name", "Book"}, {"style_prompt", "ink"}}, 201)["id"];
  const Json job = generated({{"prompt", "a fox"}, {"seed", 3}, {"project_id", book}}), other = generated({{"prompt", "an owl"}});
  EXPECT_EQ(job["project_id"], book);
  EXPECT_EQ(job["request"]["prompt"], "a fox");
  EXPECT_EQ(job["resolution"]["prompt"], "a fox, ink");
  EXPECT_EQ(other["project_id"], nullptr);
  EXPECT_THAT(found("project=" + book), ElementsAre(asset_in(job)));
  EXPECT_THAT(found("project=default"), ElementsAre(asset_in(other)));
  EXPECT_EQ(found("").size(), 2u);
  const Json item = send("GET", "/api/v1/assets/" + asset_in(job));
  EXPECT_EQ(item["project_id"], book);
  EXPECT_EQ(item["prompt"], "a fox");
  EXPECT_EQ(item["seed"], 3);
  EXPECT_THAT(found("q=ink"), ElementsAre(asset_in(job))) << "the style of its project is found";
  send("PATCH", "/api/v1/assets/" + asset_in(job), {{"name", "Fox"}});
  EXPECT_THAT(found("q=ink"), ElementsAre(asset_in(job))) << "also after a change";
  EXPECT_EQ(send("GET", "/api/v1/jobs?project=" + book)["items"].size(), 1u);
  EXPECT_EQ(send("GET", "/api/v1/jobs?project=default")["items"].size(), 1u);
  EXPECT_EQ(send("GET", "/api/v1/projects/" + book)["images"], 1);
  send("GET", "/api/v1/assets?project=book", nullptr, 400);
}

TEST_F(NativeStudioTest, ImagesAreFoundInPages) {
  for (int i = 0; i < 5; ++i) generated({{"prompt", i == 2 ? "a FOX in snow" : "an owl"}, {"seed", i}});
  EXPECT_EQ(found("q=fox").size(), 1u);
  EXPECT_EQ(found("seed=4").size(), 1u);
  const Json first = send("GET", "/api/v1/assets?limit=2");
  EXPECT_EQ(first["total"], 5);
  const Json second = send("GET", "/api/v1/assets?limit=2&cursor=" + first["next"].get<std::string>());
  EXPECT_EQ(second["total"], nullptr);
  EXPECT_LT(second["items"][0]["id"], first["items"][1]["id"]);
  EXPECT_EQ(found("sort=oldest")[0], found("")[4]);
  EXPECT_EQ(found("from=2020-01-01&to=2020-01-02").size(), 0u);
  EXPECT_EQ(found("from=2020-01-01T00:00:00Z").size(), 5u);
  for (const char* wrong :
       {"limit=0", "limit=x", "cursor=x", "sort=size", "from=yesterday", "from=2024-02-30", "starred=maybe", "seed=-1"})
    send("GET", std::string("/api/v1/assets?") + wrong, nullptr, 400);
}

TEST_F(NativeStudioTest, AnUnknownKindOfImageIsRefused) {
  generated({{"prompt", "a fox"}});
  EXPECT_EQ(found("kind=image").size(), 1u);
  for (const char* kind : {"sheet", "upload", "reference", "mask", "temporary"})
    EXPECT_TRUE(found(std::string("kind=") + kind).empty());
  const Json refused = send("GET", "/api/v1/assets?kind=images", nullptr, 400);
  EXPECT_THAT(refused["error"]["message"].get<std::string>(), HasSubstr("image, sheet, upload"))
      << "an empty list would look like an answer";
}

TEST_F(NativeStudioTest, ImagesAreArranged) {
  const std::string asset = asset_in(generated({{"prompt", "a fox"}})), path = "/api/v1/assets/" + asset;
  const std::string board = send("POST", "/api/v1/projects/default/boards", {{"name", "Best"}}, 201)["id"];
  const Json changed = send("PATCH", path, {{"name", "Cover"}, {"starred", true}, {"tags", {"b", "a"}}, {"board_id", board}});
  EXPECT_EQ(changed["tags"], Json::parse(R"(["a","b"])"));
  EXPECT_EQ(changed["board_id"], board);
  EXPECT_THAT(found("board=" + board), ElementsAre(asset));
  EXPECT_THAT(found("starred=1&tag=a&q=cover"), ElementsAre(asset));
  EXPECT_EQ(send("GET", "/api/v1/tags")["items"].size(), 2u);
  EXPECT_EQ(send("GET", "/api/v1/projects/default/boards")["items"][0]["images"], 1);
  EXPECT_EQ(send("PATCH", "/api/v1/boards/" + board, {{"cover_asset_id", asset}, {"name", "Top"}})["cover_asset_id"], asset);
  const std::string book = send("POST", "/api/v1/projects", {{"name", "Book"}}, 201)["id"];
  EXPECT_EQ(send("PATCH", path, {{"project_id", book}})["board_id"], nullptr) << "boards belong to a project";
  send("PATCH", path, {{"board_id", board}}, 400);
  send("PATCH", path, {{"tags", "a"}, {"colour", 1}}, 400);
  send("DELETE", "/api/v1/boards/" + board, nullptr, 204);
  send("PATCH", "/api/v1/boards/" + board, {{"name", "x"}}, 404);
}

TEST_F(NativeStudioTest, DeletedImagesAreInTheTrash) {
  const Json job = generated({{"prompt", "a fox"}});
  const std::string asset = asset_in(job), path = "/api/v1/assets/" + asset, image = job["images"][0]["url"];
  send("DELETE", path, nullptr, 204);
  EXPECT_TRUE(found("").empty());
  EXPECT_THAT(found("trash=1"), ElementsAre(asset));
  EXPECT_NE(send("GET", path)["deleted_at"], nullptr);
  send("GET", image, nullptr, 410);
  send("GET", path + "/thumb");
  EXPECT_EQ(send("POST", path + "/restore")["deleted_at"], nullptr);
  send("GET", image);
  send("DELETE", path, nullptr, 204);
  EXPECT_EQ(purge_trash(assets_, events_, now_ms() - 1000), 0);
  EXPECT_EQ(purge_trash(assets_, events_, now_ms() + 1000), 1);
  send("GET", path, nullptr, 404);
  const std::string other = asset_in(generated({{"prompt", "an owl"}}));
  send("DELETE", "/api/v1/assets/" + other + "?permanent=1", nullptr, 204);
  send("GET", "/api/v1/assets/" + other, nullptr, 404);
}

TEST_F(NativeStudioTest, ManyImagesChangeAtOnce) {
  const std::string a = asset_in(generated({{"prompt", "a"}})), b = asset_in(generated({{"prompt", "b"}}));
  const std::string unknown = "ast_" + new_id();
  const Json starred = send("POST", "/api/v1/assets/bulk", {{"ids", {a, unknown, b}}, {"action", "star"}});
  EXPECT_EQ(starred["done"].size(), 2u);
  EXPECT_EQ(starred["failed"][0]["code"], "not_found");
  EXPECT_EQ(found("starred=1").size(), 2u);
  send("POST", "/api/v1/assets/bulk", {{"ids", {a, b}}, {"action", "tag"}, {"tags", {"x"}}});
  send("POST", "/api/v1/assets/bulk", {{"ids", {a}}, {"action", "untag"}, {"tags", {"x"}}});
  EXPECT_THAT(found("tag=x"), ElementsAre(b));
  const std::string book = send("POST", "/api/v1/projects", {{"name", "Book"}}, 201)["id"];
  send("POST", "/api/v1/assets/bulk", {{"ids", {a}}, {"action", "move"}, {"project_id", book}});
  EXPECT_THAT(found("project=" + book), ElementsAre(a));
  send("POST", "/api/v1/assets/bulk", {{"ids", {a, b}}, {"action", "trash"}});
  EXPECT_TRUE(found("").empty());
  send("POST", "/api/v1/assets/bulk", {{"ids", {a}}, {"action", "restore"}});
  EXPECT_EQ(send("DELETE", "/api/v1/trash")["removed"], 1);
  EXPECT_THAT(found(""), ElementsAre(a));
  send("POST", "/api/v1/assets/bulk", {{"ids", {a}}, {"action", "paint"}}, 400);
  send("POST", "/api/v1/assets/bulk", {{"ids", Json::array()}, {"action", "star"}}, 400);
}

TEST_F(NativeStudioTest, AnImageKnowsItsOrigin) {
  const Json source = generated({{"prompt", "a fox"}});
  const Json edit = generated({{"kind", "edit"},
                               {"prompt", "a blue fox"},
                               {"references", {source["images"][0]["asset_id"].get<std::string>().replace(0, 4, "asset:")}}});
  const Json lineage = send("GET", "/api/v1/assets/" + asset_in(edit) + "/lineage");
  ASSERT_EQ(lineage["ancestors"].size(), 1u);
  EXPECT_EQ(lineage["ancestors"][0]["id"], asset_in(source));
  EXPECT_EQ(send("GET", "/api/v1/assets/" + asset_in(source) + "/lineage")["descendants"][0]["id"], asset_in(edit));
  EXPECT_EQ(send("GET", "/api/v1/assets/" + asset_in(source) + "/meta")["record"], nullptr) << "the test wrote no settings";
}

}  // namespace
}  // namespace flux2
