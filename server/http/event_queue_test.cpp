#include "server/http/event_queue.h"

#include <gtest/gtest.h>

#include "server/http/event_channel.h"

namespace flux2 {
namespace {

using Keep = EventStream::Keep;

EventStream::SharedText shared(std::string text) { return std::make_shared<const std::string>(std::move(text)); }

TEST(EventQueue, DropsTheOldestThatMayBeDropped) {
  EventQueue queue;
  for (size_t i = 0; i < EventQueue::kEvents; ++i)
    EXPECT_TRUE(queue.push(shared(std::to_string(i)), i % 2 == 0 ? Keep::IfRoom : Keep::Always));
  EXPECT_TRUE(queue.push(shared("state"), Keep::Always));
  EXPECT_EQ(queue.size(), EventQueue::kEvents);
  EXPECT_EQ(*queue.pop(), "1") << "0 was dropped";
  EXPECT_EQ(*queue.pop(), "2");
}

TEST(EventQueue, IsFullWhenOnlyStatesWait) {
  EventQueue queue;
  for (size_t i = 0; i < EventQueue::kEvents; ++i) ASSERT_TRUE(queue.push(shared("x"), Keep::Always));
  EXPECT_TRUE(queue.push(shared("progress"), Keep::IfRoom)) << "the new one is dropped itself";
  EXPECT_EQ(queue.size(), EventQueue::kEvents);
  EXPECT_FALSE(queue.push(shared("x"), Keep::Always));
}

TEST(EventQueue, CountsBytes) {
  EventQueue queue;
  const std::string block(100 << 10, 'x');
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(queue.push(shared(block), Keep::Always));
  EXPECT_FALSE(queue.push(shared(block), Keep::Always));
  queue.clear();
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(queue.push(shared(block), Keep::IfRoom));
  EXPECT_LE(queue.bytes(), EventQueue::kBytes);
  EXPECT_EQ(queue.size(), 10u);
}

TEST(EventQueue, FinishedImagesPass) {
  EventQueue queue;
  const std::string image(2 << 20, 'x');
  for (size_t i = 0; i < EventQueue::kLargeEvents; ++i) EXPECT_TRUE(queue.push(shared(image), Keep::Always));
  EXPECT_TRUE(queue.push(shared("state"), Keep::Always));
  EXPECT_FALSE(queue.push(shared(image), Keep::Always));
  while (!queue.empty()) queue.pop();
  EXPECT_EQ(queue.bytes(), 0u);
}

TEST(EventChannel, EndsOnce) {
  int woken = 0, closed = 0;
  const auto channel = std::make_shared<EventChannel>([&] { ++woken; });
  {
    EventStream stream(std::make_shared<EventChannelHandle>(channel));
    stream.on_closed([&] { ++closed; });
    EXPECT_TRUE(stream.event(1, "a", "b"));
    EXPECT_EQ(woken, 1);
  }
  EXPECT_EQ(woken, 2) << "the last handle closes";
  EXPECT_EQ(*channel->next().text, "id: 1\nevent: a\ndata: b\n\n");
  EXPECT_TRUE(channel->next().is_last);
  EXPECT_FALSE(channel->send("late", Keep::Always));
  EXPECT_EQ(closed, 0);
  channel->closed();
  channel->closed();
  EXPECT_EQ(closed, 1);
  channel->on_closed([&] { closed += 10; });
  EXPECT_EQ(closed, 11) << "at once when it is closed already";
}

}  // namespace
}  // namespace flux2
