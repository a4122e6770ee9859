#include "image/metadata.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <ctime>

#include "base/error.h"
#include "image/codecs.h"
#include "image/png_chunks.h"
#include "image/test_images.h"
#include "image/write_image.h"

namespace flux2 {
namespace {

using namespace std::string_literals;

const ImageMetadata kMetadata{.text = {{"parameters", "a café\nSteps: 4"}, {"flux2", R"({"prompt":"漢字 😀"})"}, {"empty", ""}},
                              .exif_comment = "a fox, 漢字 😀\nSteps: 4, Seed: 1",
                              .xmp = "<x:xmpmeta>é</x:xmpmeta>",
                              .software = "flux2.cpp 1.0.0",
                              .make = "Somebody"};

std::vector<std::string> chunk_types(const std::vector<std::byte>& png) {
  std::vector<std::string> types;
  for_each_png_chunk(png, [&](std::string_view type, auto) { types.emplace_back(type); });
  return types;
}

TEST(Metadata, PngRoundTrip) {
  const auto png = encode_png(test_image(8, 8, 3), kMetadata);
  EXPECT_EQ(read_metadata(png), kMetadata);
  EXPECT_EQ(chunk_types(png), (std::vector<std::string>{"IHDR", "tEXt", "iTXt", "tEXt", "iTXt", "eXIf", "IDAT", "IEND"}));
  EXPECT_EQ(*read_metadata(png).find_text("empty"), "");
  EXPECT_EQ(read_metadata(png).find_text("absent"), nullptr);
  EXPECT_EQ(chunk_types(encode_png(test_image(8, 8, 3))), (std::vector<std::string>{"IHDR", "IDAT", "IEND"}));
}

TEST(Metadata, JpegAndWebpKeepExifAndXmp) {
  ImageMetadata expected = kMetadata;
  expected.text.clear();
  for (int channels : {3, 4}) {
    EXPECT_EQ(read_metadata(encode_jpeg(test_image(8, 8, channels), kMetadata)), expected);
    if (!webp_available()) continue;
    EXPECT_EQ(read_metadata(encode_image(test_image(8, 8, channels), ImageFormat::WebP, kMetadata)), expected);
  }
  EXPECT_EQ(read_metadata(encode_jpeg(test_image(8, 8, 3))), ImageMetadata{});
}

TEST(Metadata, JpegRefusesWhatDoesNotFit) {
  EXPECT_THROW(encode_jpeg(test_image(8, 8, 3), {.exif_comment = std::string(33000, 'x')}), Error);
  EXPECT_NO_THROW(encode_jpeg(test_image(8, 8, 3), {.exif_comment = std::string(32000, 'x')}));
}

TEST(Metadata, FormatsWithoutMetadataAndFilesThatAreNotImages) {
  EXPECT_EQ(read_metadata(encode_ppm(test_image(8, 8, 3))), ImageMetadata{});
  EXPECT_THROW(read_metadata(bytes_of("neither")), Error);
}

std::string big(uint32_t value) {
  std::string digits;
  for (int shift : {24, 16, 8, 0}) digits += static_cast<char>(static_cast<unsigned char>(value >> shift & 255));
  return digits;
}

std::string chunk(const std::string& type, const std::string& data) {
  const std::string covered = type + data;
  const auto sum = crc32(0, reinterpret_cast<const Bytef*>(covered.data()), static_cast<uInt>(covered.size()));
  return big(static_cast<uint32_t>(data.size())) + covered + big(static_cast<uint32_t>(sum));
}

std::string packed(const std::string& text) {
  uLongf size = compressBound(text.size());
  std::string out(size, '\0');
  compress(reinterpret_cast<Bytef*>(out.data()), &size, reinterpret_cast<const Bytef*>(text.data()), text.size());
  return out.substr(0, size);
}

const std::string kSignature = "\x89PNG\r\n\x1a\n";

TEST(Metadata, ReadsTextOfOtherWriters) {
  const std::string file = kSignature + chunk("zTXt", "Comment\0\0"s + packed("caf\xe9")) +
                           chunk("iTXt", "prompt\0\x01\0en\0Prompt\0"s + packed("漢字")) +
                           chunk("iTXt", "workflow\0\0\0\0\0{}"s) + chunk("tEXt", "no terminator") +
                           chunk("zTXt", "damaged\0\0rubbish"s);
  const TextEntries expected = {{"Comment", "café"}, {"prompt", "漢字"}, {"workflow", "{}"}};
  EXPECT_EQ(read_metadata(bytes_of(file)).text, expected);
}

TEST(Metadata, LimitsDecompressedText) {
  const std::string bomb = chunk("zTXt", "bomb\0\0"s + packed(std::string(1 << 20, 'x')));
  const std::string file = kSignature + bomb + chunk("tEXt", "kept\0text"s);
  EXPECT_EQ(read_png_text(bytes_of(file), 1000), (TextEntries{{"kept", "text"}}));
  EXPECT_EQ(read_png_text(bytes_of(file)).size(), 2u);
}

TEST(Metadata, LimitsWhatIsDecompressedInAll) {
  const std::string bomb = chunk("zTXt", "bomb\0\0"s + packed(std::string(1 << 20, 'x')));
  std::string file = kSignature;
  for (int i = 0; i < 2000; ++i) file += bomb;
  file += chunk("zTXt", "late\0\0"s + packed("text"));
  const std::clock_t began = std::clock();  // of the processor: other programs do not count
  EXPECT_EQ(read_png_text(bytes_of(file), (1 << 20) - 1), TextEntries{}) << "the first one uses up what may be decompressed";
  EXPECT_LT((std::clock() - began) / CLOCKS_PER_SEC, 2) << "2 GB would be decompressed for nothing";
  size_t work = 100;
  EXPECT_EQ(inflated(packed("text"), 4, work), "text");
  EXPECT_EQ(work, 96u);
  EXPECT_FALSE(inflated(packed("text"), 3, work));
  EXPECT_EQ(work, 92u) << "counted although it was for nothing";
}

TEST(Metadata, LimitsTheNumberOfTexts) {
  std::string file = kSignature;
  for (int i = 0; i < 10'000; ++i) file += chunk("tEXt", "k\0"s);
  EXPECT_LE(read_png_text(bytes_of(file), 10'000).size(), 200u);
}

TEST(Metadata, BlocksOverTheLimitAreLeftOut) {
  const auto png = encode_png(test_image(8, 8, 3), kMetadata);
  EXPECT_EQ(read_metadata(png, {.metadata_bytes = 10}), ImageMetadata{});
  EXPECT_THROW(read_metadata(png, {.file_bytes = 10}), Error);
}

TEST(Metadata, SkipsChunksThatFailTheirChecksum) {
  std::string file = kSignature + chunk("tEXt", "a\0first"s) + chunk("tEXt", "b\0second"s);
  file[kSignature.size() + 11] ^= 1;
  EXPECT_EQ(read_metadata(bytes_of(file)).text, (TextEntries{{"b", "second"}}));
}

TEST(Metadata, RefusesTextThatPngCannotHold) {
  EXPECT_THROW(make_text_chunk("", "x"), Error);
  EXPECT_THROW(make_text_chunk(std::string(80, 'k'), "x"), Error);
  EXPECT_THROW(make_text_chunk("k", "\xff"), Error);
  EXPECT_THROW(make_text_chunk("k", "a\0b"s), Error);
}

}  // namespace
}  // namespace flux2
