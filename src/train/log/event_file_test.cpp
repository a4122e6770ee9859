#include "train/log/event_file.h"

#include <gmock/gmock.h>

#include "base/json.h"
#include "train/log/crc32c.h"
#include "train/log/output_names.h"
#include "train/log/test_folder.h"

namespace flux2 {
namespace {

std::string hex_of(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

TEST(EventFile, ChecksumIsCrc32c) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(""), 0u);
  // Eight bytes at a time and one by one must agree: CRC of a text that ends at every place.
  const std::string text = "The quick brown fox jumps over the lazy dog";
  const auto slow = [](std::string_view bytes) {
    uint32_t crc = 0xFFFFFFFFu;
    for (const char c : bytes) {
      crc ^= static_cast<unsigned char>(c);
      for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1u) != 0 ? 0x82F63B78u : 0u);
    }
    return ~crc;
  };
  for (size_t n = 0; n <= text.size(); ++n)
    EXPECT_EQ(crc32c(std::string_view(text).substr(0, n)), slow(std::string_view(text).substr(0, n)));
}

TEST(EventFile, RecordsAreThoseOfTensorBoard) {
  EXPECT_EQ(hex_of(version_event(1.0)), "1800000000000000a37f4b2209000000000000f03f1a0d627261696e2e4576656e743a3286bf577a");
  EXPECT_EQ(hex_of(scalar_event({2.0, 3}, "loss/current", 0.5f)),
            "220000000000000078113dfd09000000000000004010032a150a130a0c6c6f73732f63757272656e74150000003f68697ab5");
}

TEST(EventFile, GrowsByWholeRecords) {
  const TestFolder folder;
  EventFile file(folder / "log" / "events", 1.0);
  EXPECT_EQ(read_text_file(file.path()), version_event(1.0));
  file.add(scalar_event({2.0, 1}, "a", 1));
  file.add(text_event({2.0, 1}, "config", "lr = 1"));
  EXPECT_EQ(read_text_file(file.path()), version_event(1.0));
  file.flush();
  EXPECT_EQ(read_text_file(file.path()),
            version_event(1.0) + scalar_event({2.0, 1}, "a", 1) + text_event({2.0, 1}, "config", "lr = 1"));
}

TEST(EventFile, NamesDoNotTellTheHost) {
  const TestFolder folder;
  const auto path = new_event_path(folder / "logs", "klein_", "network_train", 1763266747);
  EXPECT_EQ(path.parent_path(), folder / "logs" / ("klein_" + compact_time(1763266747)) / "network_train");
  EXPECT_EQ(path.filename().string(), fmt::format("events.out.tfevents.1763266747.flux2.{}.0", ::getpid()));
  EventFile first(path, 1.0);
  EXPECT_THAT(new_event_path(folder / "logs", "klein_", "network_train", 1763266747).string(), ::testing::EndsWith(".1"));
}

}  // namespace
}  // namespace flux2
