#include "train/data/survey.h"

#include <gmock/gmock.h>

#include "train/data/source_images.h"
#include "train/data/test_data.h"

namespace flux2 {
namespace {

using test::DataFolder;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class Survey : public testing::Test {
 protected:
  Survey() {
    config.image_directory = folder / "images";
    config.cache_directory = folder / "cache";
    config.caption_extension = ".txt";
    config.resolution = {64, 64};
    config.enable_bucket = true;
  }

  DatasetSurvey survey() const { return survey_dataset(list_dataset(config), 2); }
  static std::vector<std::string> texts(const DatasetSurvey& survey) {
    std::vector<std::string> list;
    for (const Finding& finding : survey.findings)
      list.push_back((finding.kind == Finding::Stops ? "stops: " : "warns: ") + finding.text);
    return list;
  }

  DataFolder folder;
  DatasetConfig config;
};

TEST_F(Survey, CountsBucketsAndBatches) {
  for (const char* stem : {"images/a", "images/b", "images/c"}) folder.item(stem, 100, 100, "x");
  folder.item("images/d", 160, 80, "x");
  config.batch_size = 2;
  config.num_repeats = 3;
  const DatasetSurvey found = survey();
  EXPECT_THAT(texts(found), IsEmpty());
  ASSERT_EQ(found.buckets.size(), 2u);
  EXPECT_EQ(found.buckets[0].size, (PixelSize{64, 64}));
  EXPECT_EQ(found.buckets[0].images, 3);
  EXPECT_EQ(found.buckets[0].batches, 5);
  EXPECT_EQ(found.buckets[1].size, (PixelSize{80, 48}));
  EXPECT_EQ(found.images(), 4);
  EXPECT_EQ(found.batches(), 7);
  EXPECT_FALSE(found.stops());
}

TEST_F(Survey, FindsWhatIsWrong) {
  folder.item("images/a", 100, 100, "x");
  folder.item("images/tiny", 20, 20, "x");
  folder.item("images/broken", 20, 20, "x");
  folder.text("images/broken.png", "nothing");
  for (const char* stem : {"control/a.png", "control/tiny.png", "control/broken.png"}) folder.image(stem, 128, 64);
  config.control_directory = folder / "control";
  config.batch_size = 4;
  const DatasetSurvey found = survey();
  EXPECT_TRUE(found.stops());
  EXPECT_THAT(texts(found), Contains(HasSubstr("broken.png")));
  EXPECT_THAT(
      texts(found),
      Contains(HasSubstr("1 of 3 images will be blurred, because they are enlarged by more than 1.5×: tiny.png (20×20)")));
  EXPECT_THAT(texts(found), Contains(HasSubstr("references with other proportions for 2 of 3 images")));
  EXPECT_THAT(texts(found), Contains(HasSubstr("too few images for a batch of 4 in 1 of 1 buckets")));
}

TEST_F(Survey, TooSmallToKeepTheirSize) {
  folder.item("images/a", 100, 10, "x");
  config.bucket_no_upscale = true;
  EXPECT_THAT(texts(survey()), ElementsAre(HasSubstr("a.png is too small: 100×10 pixels")));
}

TEST(ReferenceSize, FollowsTheTable) {
  DatasetConfig config;
  const PixelSize bucket{64, 96};
  EXPECT_EQ(reference_size(config, {200, 100}, bucket), bucket);
  config.control_resolution = PixelSize{1024, 1024};
  EXPECT_EQ(reference_size(config, {1920, 1080}, bucket), (PixelSize{1360, 768}));
  EXPECT_EQ(reference_size(config, {512, 512}, bucket), (PixelSize{1024, 1024}));
  config.no_resize_control = true;
  EXPECT_EQ(reference_size(config, {1920, 1080}, bucket), (PixelSize{1360, 768}));
  EXPECT_EQ(reference_size(config, {517, 530}, bucket), (PixelSize{512, 528}));  // smaller than the limit: kept, but on the grid
  config.control_resolution.reset();
  EXPECT_EQ(reference_size(config, {1925, 1081}, bucket), (PixelSize{1920, 1072}));
}

TEST(SourceImages, ExifTurnsImagesUpright) {
  const DataFolder folder;
  Image image(32, 16, 3);
  image.at(0, 0)[0] = 200;
  std::vector<std::byte> jpeg = encode_jpeg(image, {}, 100);
  // An EXIF block with orientation 6 (turned to the left) behind the start of the file.
  const std::string exif(
      "\xff\xe1\x00\x22"
      "Exif\0\0"
      "MM\0*\0\0\0\x08"
      "\0\x01"
      "\x01\x12\0\x03\0\0\0\x01\0\x06\0\0"
      "\0\0\0\0",
      36);
  std::vector<std::byte> turned(jpeg.begin(), jpeg.begin() + 2);
  for (const char c : exif) turned.push_back(static_cast<std::byte>(c));
  turned.insert(turned.end(), jpeg.begin() + 2, jpeg.end());
  save_image(folder / "a.jpg", turned);
  DatasetItem item;
  item.image = folder / "a.jpg";
  DatasetConfig config;
  EXPECT_EQ(read_sources(config, item).target.width, 16);
  config.exif = false;
  EXPECT_EQ(read_sources(config, item).target.width, 32);
}

TEST(SourceImages, MaskMustHaveTheProportionsOfItsImage) {
  const DataFolder folder;
  folder.image("a.png", 64, 64);
  folder.image("m.png", 64, 32);
  DatasetItem item;
  item.image = folder / "a.png";
  item.mask = folder / "m.png";
  EXPECT_THAT(test::message_of([&] { read_sources({}, item); }), HasSubstr("they must have the same proportions"));
  folder.image("m.png", 32, 32);
  EXPECT_EQ(read_sources({}, item).mask.channels, 1);
}

TEST(SourceImages, SamplesGoFromMinusOneToOne) {
  Image image(2, 1, 3);
  image.pixels = {0, 255, 127, 128, 0, 51};
  EXPECT_THAT(training_planes(image),
              ElementsAre(-1.0f, 128.0f / 127.5f - 1.0f, 1.0f, -1.0f, 127.0f / 127.5f - 1.0f, 51.0f / 127.5f - 1.0f));
}

}  // namespace
}  // namespace flux2
