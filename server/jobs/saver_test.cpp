#include "server/jobs/saver.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <string>
#include <vector>

#include "base/error.h"

namespace flux2 {
namespace {

using std::chrono::milliseconds;

// A save that blocks until it is released.
struct Gate {
  std::promise<void> opened;
  std::shared_future<void> open = opened.get_future().share();
  std::function<void()> save() const {
    return [wait = open] { wait.wait(); };
  }
  void let_go() { opened.set_value(); }
};

std::string text_of(const std::exception_ptr& error) {
  if (!error) return "";
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  }
}

bool is_soon(std::future<void>& future) { return future.wait_for(milliseconds(20'000)) == std::future_status::ready; }
bool is_blocked(std::future<void>& future) { return future.wait_for(milliseconds(50)) == std::future_status::timeout; }

const int kFirst = 1, kSecond = 2;  // owners

TEST(Saver, SavesInOrderAndEndsAfterTheLastSave) {
  std::vector<std::string> seen;
  {
    Saver saver;
    for (int i = 0; i < 3; ++i) {
      saver.add(&kFirst, 10, [&, i] { seen.push_back("a" + std::to_string(i)); });
      saver.add(&kSecond, 10, [&, i] { seen.push_back("b" + std::to_string(i)); });
      if (i == 1) saver.finish(&kFirst, [&](const std::exception_ptr& error) { seen.push_back("end" + text_of(error)); });
    }
    saver.finish(&kSecond, [&](const std::exception_ptr&) { seen.push_back("end"); });
  }
  EXPECT_EQ(seen, (std::vector<std::string>{"a0", "b0", "a1", "b1", "end", "a2", "b2", "end"}));
}

TEST(Saver, AFullBacklogMakesTheCallerWait) {
  for (const Saver::Limits limits : {Saver::Limits{.saves = 2, .bytes = 1000}, Saver::Limits{.saves = 100, .bytes = 25}}) {
    Gate gate;
    std::atomic<int> saved = 0;
    Saver saver(limits);
    saver.add(&kFirst, 10, gate.save());
    saver.add(&kFirst, 10, [&] { ++saved; });
    std::promise<void> added;
    auto was_added = added.get_future();
    std::jthread third([&] {
      saver.add(&kFirst, 10, [&] { ++saved; });
      added.set_value();
    });
    EXPECT_TRUE(is_blocked(was_added)) << "the third one exceeds the limit";
    EXPECT_EQ(saved, 0);
    gate.let_go();
    EXPECT_TRUE(is_soon(was_added));
    saver.drain();
    EXPECT_EQ(saved, 2);
  }
}

TEST(Saver, TakesOneImageThatIsLargerThanTheLimit) {
  bool saved = false;
  Saver saver({.saves = 2, .bytes = 10});
  saver.add(&kFirst, 1000, [&] { saved = true; });
  saver.drain();
  EXPECT_TRUE(saved);
}

TEST(Saver, AnErrorEndsItsOwnerAlone) {
  bool skipped = true, other = false;
  std::string first = "?", second = "?";
  {
    Saver saver;
    saver.add(&kFirst, 1, [] { fail(ErrorCode::CannotWrite, "the disk is full"); });
    saver.add(&kFirst, 1, [&] { skipped = false; });
    saver.add(&kSecond, 1, [&] { other = true; });
    saver.finish(&kFirst, [&](const std::exception_ptr& error) { first = text_of(error); });
    saver.finish(&kSecond, [&](const std::exception_ptr& error) { second = text_of(error); });
    saver.drain();
    EXPECT_FALSE(saver.has_failed(&kFirst)) << "an owner that has ended is forgotten";
  }
  EXPECT_TRUE(skipped);
  EXPECT_TRUE(other);
  EXPECT_EQ(first, "the disk is full");
  EXPECT_EQ(second, "");
}

TEST(Saver, DrainWaitsForOneOwnerAndGivesItsError) {
  Gate gate;
  Saver saver;
  EXPECT_EQ(saver.drain(&kFirst), nullptr) << "nothing was added";
  bool saved = false;
  saver.add(&kFirst, 1, [&] { saved = true; });
  saver.add(&kSecond, 1, gate.save());
  EXPECT_EQ(saver.drain(&kFirst), nullptr);
  EXPECT_TRUE(saved) << "while the other one still waits";

  saver.add(&kFirst, 1, [] { fail(ErrorCode::CannotWrite, "no permission"); });
  gate.let_go();
  EXPECT_EQ(text_of(saver.drain(&kFirst)), "no permission");
  EXPECT_FALSE(saver.has_failed(&kFirst));
  EXPECT_EQ(saver.drain(&kFirst), nullptr) << "the error is given once";
}

TEST(Saver, TellsOfAFailureWhileItsOwnerGoesOn) {
  Gate gate;
  Saver saver;
  saver.add(&kFirst, 1, [] { fail(ErrorCode::CannotWrite, "the disk is full"); });
  saver.add(&kSecond, 1, gate.save());
  while (!saver.has_failed(&kFirst)) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_FALSE(saver.has_failed(&kSecond));
  gate.let_go();
  EXPECT_EQ(text_of(saver.drain(&kFirst)), "the disk is full");
}

}  // namespace
}  // namespace flux2
