#include "train/data/dataset.h"

#include <gmock/gmock.h>

#include "train/data/test_data.h"

namespace flux2 {
namespace {

using test::DataFolder;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

DatasetConfig folder_config(const DataFolder& folder, const std::string& images = "images") {
  DatasetConfig config;
  config.image_directory = folder / images;
  config.cache_directory = folder / "cache";
  config.caption_extension = ".txt";
  return config;
}

std::vector<std::string> stems(const Dataset& dataset) {
  std::vector<std::string> list;
  for (const DatasetItem& item : dataset.items) list.push_back(item.stem);
  return list;
}

std::vector<std::string> texts(const std::vector<Finding>& findings, Finding::Kind kind) {
  std::vector<std::string> list;
  for (const Finding& finding : findings)
    if (finding.kind == kind) list.push_back(finding.text);
  return list;
}

std::vector<std::string> names(const std::vector<std::filesystem::path>& paths) {
  std::vector<std::string> list;
  for (const auto& path : paths) list.push_back(path.filename().string());
  return list;
}

TEST(ListDataset, SortedImagesWithCaptions) {
  const DataFolder folder;
  folder.item("images/b", 16, 16, " two \n");
  folder.item("images/a", 16, 16, "one");
  folder.image("images/c.PNG", 16, 16);
  folder.text("images/c.txt", "three");
  folder.text("images/d.txt", "a caption without an image");
  folder.image("images/.hidden.png", 16, 16);
  folder.item("images/below/e", 16, 16, "not listed");
  const Dataset dataset = list_dataset(folder_config(folder));
  EXPECT_THAT(stems(dataset), ElementsAre("a", "b", "c"));
  EXPECT_THAT(dataset.items[1].captions, ElementsAre("two"));
  EXPECT_THAT(dataset.findings, IsEmpty());
}

TEST(ListDataset, ImagesWithoutCaptionAreLeftOutOrGetTheDefault) {
  const DataFolder folder;
  folder.item("images/a", 16, 16, "one");
  folder.image("images/b.png", 16, 16);
  DatasetConfig config = folder_config(folder);
  Dataset dataset = list_dataset(config);
  EXPECT_THAT(stems(dataset), ElementsAre("a"));
  EXPECT_THAT(texts(dataset.findings, Finding::Warns), ElementsAre(HasSubstr("for 1 of 2 images in")));
  EXPECT_THAT(texts(dataset.findings, Finding::Stops), IsEmpty());
  config.caption_default = "something";
  dataset = list_dataset(config);
  EXPECT_THAT(stems(dataset), ElementsAre("a", "b"));
  EXPECT_THAT(dataset.items[1].captions, ElementsAre("something"));
}

TEST(ListDataset, CaptionExtensionMayHaveTwoDots) {
  const DataFolder folder;
  folder.image("images/a.png", 16, 16);
  folder.text("images/a.caption.txt", "one");
  DatasetConfig config = folder_config(folder);
  config.caption_extension = ".caption.txt";
  EXPECT_THAT(stems(list_dataset(config)), ElementsAre("a"));
}

TEST(ListDataset, RecursiveFindsFoldersBelow) {
  const DataFolder folder;
  folder.item("images/a", 16, 16, "one");
  folder.item("images/x/b", 16, 16, "two");
  folder.item("images/x/y/c", 16, 16, "three");
  folder.item("images/.git/d", 16, 16, "hidden");
  folder.item("images/masks/e", 16, 16, "a mask, not an image");
  folder.image("images/masks/x/b.png", 16, 16);
  DatasetConfig config = folder_config(folder);
  config.recursive = true;
  config.mask_directory = folder / "images/masks";
  const Dataset dataset = list_dataset(config);
  EXPECT_THAT(stems(dataset), ElementsAre("a", "b", "c"));
  EXPECT_EQ(dataset.items[1].mask, folder / "images/masks/x/b.png");
  EXPECT_TRUE(dataset.items[0].mask.empty());
  EXPECT_THAT(texts(dataset.findings, Finding::Warns), ElementsAre(HasSubstr("for 2 of 3 images, so all")));
}

TEST(ListDataset, EqualStemsStop) {
  const DataFolder folder;
  folder.item("images/a", 16, 16, "one");
  folder.image("images/a.bmp", 16, 16);
  EXPECT_THAT(texts(list_dataset(folder_config(folder)).findings, Finding::Stops), ElementsAre(HasSubstr("share a cache file")));
}

TEST(ListDataset, NothingToTrainOnStops) {
  const DataFolder folder;
  std::filesystem::create_directories(folder / "images");
  const auto stops = [&] { return texts(list_dataset(folder_config(folder)).findings, Finding::Stops); };
  EXPECT_THAT(stops(), ElementsAre(HasSubstr("contains no images")));
  folder.image("images/a.png", 16, 16);
  EXPECT_THAT(stops(), ElementsAre(HasSubstr("has a caption: write a text file beside each, for example a.txt")));
  EXPECT_THAT(texts(list_dataset(folder_config(folder, "nowhere")).findings, Finding::Stops),
              ElementsAre(HasSubstr("does not exist")));
}

TEST(ListDatasets, ThrowsTheFirstFaultAndLogsWarnings) {
  const DataFolder folder;
  folder.item("images/a", 16, 16, "");
  test::KeptLog kept;
  EXPECT_EQ(list_datasets({folder_config(folder)}, {}, kept.log()).size(), 1u);
  EXPECT_THAT(kept.warnings, ElementsAre(HasSubstr("a.txt is empty")));
  EXPECT_THAT(test::message_of([&] {
                list_datasets({folder_config(folder), folder_config(folder, "no")});
              }),
              HasSubstr("datasets[1]: the folder"));
}

// The rules of control_directory.
class References : public testing::Test {
 protected:
  References() { config.control_directory = folder / "control"; }

  void targets(const std::vector<std::string>& list) {
    for (const std::string& stem : list) folder.item("images/" + stem, 16, 16, stem);
  }
  void references(const std::vector<std::string>& list) {
    for (const std::string& name : list) folder.image("control/" + name, 16, 16);
  }

  DataFolder folder;
  DatasetConfig config = folder_config(folder);
};

TEST_F(References, ExactNameFirstThenByNumber) {
  targets({"cat"});
  references({"cat_10.png", "cat_2.png", "cat.png", "cat_0.png"});
  const Dataset dataset = list_dataset(config);
  EXPECT_THAT(names(dataset.items[0].references), ElementsAre("cat.png", "cat_0.png", "cat_2.png", "cat_10.png"));
  EXPECT_TRUE(dataset.has_references());
}

TEST_F(References, EqualNumbersGoByName) {
  targets({"cat"});
  references({"cat_1.png", "cat_01.png"});
  EXPECT_THAT(names(list_dataset(config).items[0].references), ElementsAre("cat_01.png", "cat_1.png"));
}

TEST_F(References, LongerNamesChooseFirst) {
  targets({"a", "a_1", "ab"});
  references({"a.png", "a_1.png", "a_1_0.png", "ab.png", "a_2.png"});
  const Dataset dataset = list_dataset(config);
  EXPECT_THAT(dataset.findings, IsEmpty());
  EXPECT_THAT(names(dataset.items[0].references), ElementsAre("a.png", "a_2.png"));
  EXPECT_THAT(names(dataset.items[1].references), ElementsAre("a_1.png", "a_1_0.png"));
  EXPECT_THAT(names(dataset.items[2].references), ElementsAre("ab.png"));
}

TEST_F(References, MissingOnesStop) {
  targets({"a", "b"});
  references({"a.png"});
  EXPECT_THAT(texts(list_dataset(config).findings, Finding::Stops),
              ElementsAre(HasSubstr("for 1 of 2 images: b.png; the file has the name of its image")));
}

TEST_F(References, NumbersAreRequired) {
  targets({"a"});
  references({"a.png", "a_left.png"});
  EXPECT_THAT(texts(list_dataset(config).findings, Finding::Stops), ElementsAre(HasSubstr("call it a_1.png")));
}

// The image prompts of targets: image_prompt_directory and image_prompt_group.
class ImagePromptsOfItems : public testing::Test {
 protected:
  ImagePromptsOfItems() {
    folder.item("images/cat", 16, 16, "a cat");
    folder.item("images/cat_2", 16, 16, "a cat");
    folder.item("images/dog", 16, 16, "a dog");
  }
  std::vector<std::string> stops() const { return texts(list_dataset(config).findings, Finding::Stops); }

  DataFolder folder;
  DatasetConfig config = folder_config(folder);
};

TEST_F(ImagePromptsOfItems, AreFoundByName) {
  config.image_prompt_directory = folder / "prompts";
  for (const char* name : {"cat.png", "cat_7.png", "cat_2_0.png", "dog.png"}) folder.image(std::string("prompts/") + name, 8, 8);
  const Dataset dataset = list_dataset(config);
  EXPECT_THAT(dataset.findings, IsEmpty());
  EXPECT_THAT(names(dataset.items[0].image_prompts), ElementsAre("cat.png", "cat_7.png"));
  EXPECT_THAT(names(dataset.items[1].image_prompts), ElementsAre("cat_2_0.png"));
  EXPECT_THAT(names(dataset.items[2].image_prompts), ElementsAre("dog.png"));
  EXPECT_FALSE(dataset.has_references());
}

TEST_F(ImagePromptsOfItems, MissingOnesStop) {
  config.image_prompt_directory = folder / "prompts";
  EXPECT_THAT(stops(), ElementsAre(HasSubstr("does not exist")));
  folder.image("prompts/cat.png", 8, 8);
  folder.image("prompts/dog_left.png", 8, 8);
  EXPECT_THAT(stops(), ElementsAre(AllOf(HasSubstr("the image prompt "), HasSubstr("call it dog_1.png")),
                                   AllOf(HasSubstr("no image prompt in "), HasSubstr("for 2 of 3 images: cat_2.png, dog.png"))));
}

TEST_F(ImagePromptsOfItems, GroupsNeedTwoImages) {
  EXPECT_FALSE(list_dataset(config).items[0].group);
  config.image_prompt_group = ImageGroup::Caption;
  EXPECT_THAT(stops(), ElementsAre(HasSubstr("another image with the same caption for each image; 1 of 3 have none: dog.png")));
  folder.item("images/puppy", 16, 16, "a dog");
  config.trigger_word = "sks";  // the captions of the group are those of the files
  const Dataset dataset = list_dataset(config);
  EXPECT_THAT(dataset.findings, IsEmpty());
  EXPECT_EQ(dataset.items[0].group, dataset.items[1].group);
  EXPECT_EQ(dataset.items[2].group, dataset.items[3].group);
  EXPECT_NE(dataset.items[0].group, dataset.items[2].group);

  config.image_prompt_group = ImageGroup::Folder;
  EXPECT_THAT(stops(), IsEmpty());
  config.recursive = true;
  folder.item("images/birds/a", 16, 16, "a bird");
  EXPECT_THAT(stops(), ElementsAre(HasSubstr("another image in the same folder for each image; 1 of 5 have none: a.png")));
}

class Lines : public testing::Test {
 protected:
  Lines() {
    config.image_jsonl_file = folder / "list.jsonl";
    config.cache_directory = folder / "cache";
    for (const char* name : {"a.png", "b.png", "r0.png", "r1.png"}) folder.image(name, 16, 16);
  }

  DataFolder folder;
  DatasetConfig config;
};

TEST_F(Lines, ImagesCaptionsAndReferences) {
  folder.text(
      "list.jsonl",
      "{\"image_path\": \"a.png\", \"caption\": \" kept as it is \", \"control_path_0010\": \"r1.png\", \"control_path_2\": "
      "\"r0.png\"}\n\n{\"image_path_0\": \"b.png\", \"caption\": \"two\", \"control_path\": \"r1.png\"}\n");
  const Dataset dataset = list_dataset(config);
  EXPECT_THAT(dataset.findings, IsEmpty());
  ASSERT_THAT(stems(dataset), ElementsAre("a", "b"));
  EXPECT_EQ(dataset.items[0].image, folder / "a.png");
  EXPECT_THAT(dataset.items[0].captions, ElementsAre(" kept as it is "));
  EXPECT_THAT(names(dataset.items[0].references), ElementsAre("r0.png", "r1.png"));
  EXPECT_THAT(names(dataset.items[1].references), ElementsAre("r1.png"));
}

TEST_F(Lines, ImagePrompts) {
  const std::string a =
      "{\"image_path\": \"a.png\", \"caption\": \"one\", \"image_prompt_path_1\": \"r1.png\", "
      "\"image_prompt_path\": \"r0.png\"}\n";
  const std::string b = "{\"image_path\": \"b.png\", \"caption\": \"two\"";
  folder.text("list.jsonl", a + b + ", \"image_prompt_path\": \"a.png\"}\n");
  const Dataset dataset = list_dataset(config);
  EXPECT_THAT(dataset.findings, IsEmpty());
  EXPECT_THAT(names(dataset.items[0].image_prompts), ElementsAre("r0.png", "r1.png"));
  EXPECT_THAT(names(dataset.items[1].image_prompts), ElementsAre("a.png"));
  EXPECT_THAT(dataset.items[0].references, IsEmpty());

  const auto stops = [&](const std::string& content) {
    folder.text("list.jsonl", content);
    return texts(list_dataset(config).findings, Finding::Stops);
  };
  EXPECT_THAT(stops(a + b + "}\n"), ElementsAre(HasSubstr("some lines have image_prompt_path, but 1 of 2 do not: b.png")));
  EXPECT_THAT(stops(a + b + ", \"image_prompt_path\": \"lost.png\"}\n"),
              ElementsAre(HasSubstr("line 2: the file lost.png does not exist")));
  EXPECT_THAT(stops(b + ", \"image_prompt_path_x\": \"a.png\"}\n"),
              ElementsAre(HasSubstr("must end in a number, like image_prompt_path_0")));
  config.image_prompt_group = ImageGroup::Folder;
  EXPECT_THAT(stops(a + b + ", \"image_prompt_path\": \"a.png\"}\n"),
              ElementsAre(HasSubstr("so image_prompt_group cannot be used with it")));
}

TEST_F(Lines, FaultsNameTheLine) {
  const auto stops = [&](const std::string& content) {
    folder.text("list.jsonl", content);
    return texts(list_dataset(config).findings, Finding::Stops);
  };
  EXPECT_THAT(stops("{\"image_path\": \"a.png\"}"), ElementsAre(HasSubstr("line 1: \"caption\" is missing")));
  EXPECT_THAT(stops("\n{\"image_path\": \"nothing.png\", \"caption\": \"\"}"),
              ElementsAre(HasSubstr("line 2: the file nothing.png does not exist")));
  EXPECT_THAT(stops("{\"image_path\": \"a.png\", \"caption\": \"\", \"control_path\": \"no.png\"}"),
              ElementsAre(HasSubstr("the file no.png does not exist")));
  EXPECT_THAT(stops("{\"caption\": \"x\"}"), ElementsAre(HasSubstr("line 1: \"image_path\" is missing")));
  EXPECT_THAT(stops("{\"image_path\": 3}"), ElementsAre(HasSubstr("\"image_path\" must be a text in quotes")));
  EXPECT_THAT(stops("{\"image_path\": \"a.png\", \"caption\": \"x\", \"control_path_x\": \"r0.png\"}"),
              ElementsAre(HasSubstr("must end in a number")));
  EXPECT_THAT(stops("{\"image_path\""), ElementsAre(HasSubstr("list.jsonl, line 1")));
  EXPECT_THAT(stops(""), ElementsAre(HasSubstr("lists no images")));
  const std::string line = "{\"image_path\": \"a.png\", \"caption\": \"x\"}\n";
  EXPECT_THAT(stops(line + line), ElementsAre(HasSubstr("share a cache file")));
}

}  // namespace
}  // namespace flux2
