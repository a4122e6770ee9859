// A download that is killed at any moment continues with the missing bytes.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <random>
#include <thread>

#include "base/json.h"
#include "base/sha256.h"
#include "hub/remote/hub_cache.h"
#include "hub/remote/partial_file.h"
#include "hub/remote/transfer.h"
#include "tests/support/fake_hub.h"
#include "tests/support/paths.h"
#include "tests/support/subprocess.h"

namespace flux2::test {
namespace {

constexpr uint64_t kSize = 24 << 20;
constexpr int kKills = 20;
// What one killed process may have received and not yet written: four parts, each with a full buffer of ours and whatever the
// socket held, which the server counts as sent.
constexpr uint64_t kInFlight = 4 * ((128 << 10) + (512 << 10));

struct DownloadKill : testing::Test {
  FakeHub hub{{{"m.safetensors", {.content = random_bytes(kSize, 11)}}, {"config.json", {.content = "{}", .large = false}}}};
  ScratchFolder scratch;
  Start start{.arguments = {test::fetch_tool(), FakeHub::kRepository},
              .environment = {{"HF_HOME", scratch.path().string()}, {"HF_ENDPOINT", hub.endpoint()}}};

  // The complete and partial files that the killed process left behind.
  uint64_t bytes_there() const {
    const std::string etag = sha256(std::as_bytes(std::span(hub.files.at("m.safetensors").content)));
    const HubCache cache(scratch.path() / "hub", FakeHub::kRepository);
    if (std::filesystem::exists(cache.blob(etag))) return kSize;
    return std::filesystem::exists(cache.partial(etag))
               ? PartialFile(cache.partial(etag), etag, kSize, segment_size(kSize)).have()
               : 0;
  }

  void expect_right(const Finished& done) {
    ASSERT_EQ(done.status, 0) << done.err;
    const Json report = parse_json(done.out);
    ASSERT_EQ(report["files"].size(), 2u);
    EXPECT_EQ(read_text_file(report["files"][1]["local"].get<std::string>()), hub.files.at("m.safetensors").content);
    size_t blobs = 0;
    for (const auto& entry : std::filesystem::directory_iterator(scratch.path() / "hub/models--owner--model/blobs")) {
      ++blobs;
      EXPECT_EQ(entry.path().string().find("incomplete"), std::string::npos);
    }
    EXPECT_EQ(blobs, 2u);
  }
};

// One download that is killed at random moments until it succeeds.
TEST_F(DownloadKill, ResumesAfterKill) {
  std::mt19937 random(12);
  hub.storage_bytes_per_s = 8 << 20;
  int kills = 0;
  for (; kills < kKills; ++kills) {
    Subprocess process(start);
    std::this_thread::sleep_for(std::chrono::milliseconds(std::uniform_int_distribution<int>(1, 120)(random)));
    process.signal(SIGKILL);
    if (process.wait().status != 128 + SIGKILL) break;
  }
  hub.storage_bytes_per_s = 0;
  expect_right(run(start));
  const uint64_t sent = hub.storage().body_bytes_sent();
  EXPECT_LE(sent, kSize + static_cast<uint64_t>(kills) * kInFlight);
  RecordProperty("kills", kills);
  RecordProperty("bytes_sent", std::to_string(sent));
}

// Twenty downloads, each killed once. The second run requests only the bytes that the first did not write.
TEST_F(DownloadKill, SecondRunRequestsOnlyMissingBytes) {
  std::mt19937 random(13);
  for (int i = 0; i < kKills; ++i) {
    std::filesystem::remove_all(scratch.path() / "hub");
    hub.storage_bytes_per_s = 16 << 20;
    hub.storage().forget();
    {
      Subprocess process(start);
      std::this_thread::sleep_for(std::chrono::milliseconds(std::uniform_int_distribution<int>(20, 400)(random)));
      process.signal(SIGKILL);
      process.wait();
    }
    const uint64_t sent = hub.storage().body_bytes_sent(), had = bytes_there();
    hub.storage_bytes_per_s = 0;
    hub.storage().forget();
    expect_right(run(start));
    uint64_t asked = 0;
    for (const ServedRequest& r : hub.storage().requests()) {
      ASSERT_TRUE(r.range().has_value());
      asked += *r.range()->second - r.range()->first + 1;
    }
    EXPECT_EQ(asked, kSize - had) << "kill " << i;
    EXPECT_LE(sent, had + kInFlight) << "kill " << i;
  }
}

TEST_F(DownloadKill, ConcurrentDownloadsTransferOnce) {
  hub.storage_bytes_per_s = 16 << 20;
  Subprocess first(start), second(start);
  expect_right(first.wait());
  expect_right(second.wait());
  EXPECT_EQ(hub.storage().body_bytes_sent(), kSize);
}

}  // namespace
}  // namespace flux2::test
