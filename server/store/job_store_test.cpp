#include "server/store/job_store.h"

#include <algorithm>
#include <atomic>
#include <set>
#include <thread>

#include "server/store/store_tests.h"
#include "server/store/test_processes.h"

namespace flux2 {
namespace {

using Ids = std::vector<std::string>;

TEST_P(StoreTest, KeepsEveryFieldOfAJob) {
  Job job = made("edit");
  job.lane = "cpu";
  job.project = "P";
  job.client_ref = "ref ü";
  job.model_key = "95d1e2f43a";
  job.merge_key = "m";
  job.priority = -3;
  job.idempotency_key = "key";
  job.request_hash = "abc";
  job.retry_of = new_id();
  job.request["seed"] = uint64_t{18446744073709551615u};
  job.resolved = {{"attempt", 2}};
  const auto inserted = open()->insert(job, 10);
  EXPECT_FALSE(inserted.existed);

  const auto found = open()->get(job.id);  // through another connection
  ASSERT_TRUE(found);
  EXPECT_EQ(found->kind, "edit");
  EXPECT_EQ(found->state, "queued");
  EXPECT_EQ(found->lane, "cpu");
  EXPECT_EQ(found->project, "P");
  EXPECT_EQ(found->client_ref, "ref ü");
  EXPECT_EQ(found->model_key, "95d1e2f43a");
  EXPECT_EQ(found->merge_key, "m");
  EXPECT_EQ(found->priority, -3);
  EXPECT_EQ(found->seq, inserted.job.seq);
  EXPECT_EQ(found->idempotency_key, "key");
  EXPECT_EQ(found->request_hash, "abc");
  EXPECT_EQ(found->retry_of, job.retry_of);
  EXPECT_EQ(found->request, job.request);
  EXPECT_EQ(found->resolved, job.resolved);
  EXPECT_TRUE(found->result.is_null());
  EXPECT_TRUE(found->error.is_null());
  EXPECT_EQ(found->created, job.created);
  EXPECT_EQ(found->started, 0);
  EXPECT_FALSE(open()->get(new_id()));
}

TEST_P(StoreTest, ListsNewestFirstInPages) {
  const auto store = open();
  Ids all;
  for (int i = 0; i < 5; ++i)
    all.insert(all.begin(), added(*store, [&](Job& job) {
                              job.kind = i == 2 ? "edit" : "generate";
                              job.project = i == 3 ? "P" : "";
                            }).id);
  EXPECT_EQ(ids_of(store->list({})), all);
  EXPECT_EQ(ids_of(store->list({.limit = 2})), (Ids{all[0], all[1]}));
  EXPECT_EQ(ids_of(store->list({.before = all[1], .limit = 2})), (Ids{all[2], all[3]}));
  EXPECT_EQ(ids_of(store->list({.kind = "edit"})), (Ids{all[2]}));
  EXPECT_EQ(ids_of(store->list({.project = "P"})), (Ids{all[1]}));
  EXPECT_EQ(ids_of(store->list({.state = "running"})), Ids{});
  EXPECT_EQ(ids_of(store->list({.project = "P' OR '1"})), Ids{});
}

TEST_P(StoreTest, AJobRunsAndCompletes) {
  const auto store = open();
  const Job job = added(*store);
  auto claimed = store->claim("gpu", "w", "", 1000);
  ASSERT_TRUE(claimed);
  EXPECT_EQ(claimed->id, job.id);
  EXPECT_EQ(claimed->state, "running");
  EXPECT_EQ(claimed->started, 1000);
  EXPECT_EQ(claimed->lease_until, 31'000);
  EXPECT_FALSE(store->claim("gpu", "w", "", 1000));

  claimed->phase = "denoise";
  claimed->message = "denoise 3/4";
  claimed->step = 3;
  claimed->steps = 4;
  claimed->progress = 0.625;
  claimed->resolved = {{"steps", 4}};
  EXPECT_TRUE(store->set_progress(*claimed));
  EXPECT_TRUE(store->add_image(job.id, "w", {.index = 1, .asset = "B", .seed = 18446744073709551615u, .width = 8, .height = 9}));
  EXPECT_TRUE(store->add_image(job.id, "w", {.index = 0, .asset = "A", .seed = 42, .width = 8, .height = 9}));
  auto now = store->get(job.id);
  EXPECT_EQ(now->phase, "denoise");
  EXPECT_EQ(now->message, "denoise 3/4");
  EXPECT_EQ(now->step, 3);
  EXPECT_EQ(now->progress, 0.625);
  ASSERT_EQ(now->images.size(), 2u);
  EXPECT_EQ(now->images[0].asset, "A");
  EXPECT_EQ(now->images[1].seed, 18446744073709551615u);

  now->state = "completed";
  now->finished = 2000;
  now->result = {{"warnings", {"w"}}};
  EXPECT_TRUE(store->finish(*now));
  const auto done = store->get(job.id);
  EXPECT_EQ(done->state, "completed");
  EXPECT_EQ(done->finished, 2000);
  EXPECT_EQ(done->progress, 1);
  EXPECT_EQ(done->step, 4);
  EXPECT_EQ(done->message, "");
  EXPECT_EQ(done->resolved, (Json{{"steps", 4}}));
  EXPECT_EQ(done->result, (Json{{"warnings", {"w"}}}));
  EXPECT_EQ(done->images.size(), 2u);

  EXPECT_FALSE(store->finish(*now)) << "a job ends once";
  EXPECT_FALSE(store->set_progress(*claimed));
  EXPECT_FALSE(store->add_image(job.id, "w", {}));
}

TEST_P(StoreTest, OnlyTheHolderChangesARunningJob) {
  const auto store = open();
  added(*store);
  Job job = *store->claim("gpu", "w1", "", now_ms());
  job.worker = "w2";
  EXPECT_FALSE(store->set_progress(job));
  EXPECT_FALSE(store->add_image(job.id, "w2", {}));
  EXPECT_FALSE(store->give_back(job.id, "w2"));
  job.state = "completed";
  EXPECT_FALSE(store->finish(job));
  EXPECT_EQ(store->get(job.id)->state, "running");
  job.state = "running";
  EXPECT_EQ(code_of([&] { store->finish(job); }), ErrorCode::InvalidArgument);
}

TEST_P(StoreTest, ClaimsByPriorityThenArrival) {
  const auto store = open();
  const std::string a = added(*store).id, b = added(*store).id;
  const std::string urgent = added(*store, [](Job& job) { job.priority = 5; }).id;
  const std::string late = added(*store, [](Job& job) { job.priority = -1; }).id;
  added(*store, [](Job& job) { job.lane = "net"; });
  EXPECT_EQ(ids_of(store->waiting("gpu")), (Ids{urgent, a, b, late}));
  EXPECT_EQ(store->queue_position(*store->get(urgent)), 1);
  EXPECT_EQ(store->queue_position(*store->get(late)), 4);
  Ids claimed;
  while (auto job = store->claim("gpu", "w", "", now_ms())) claimed.push_back(job->id);
  EXPECT_EQ(claimed, (Ids{urgent, a, b, late}));
  EXPECT_EQ(store->queue_position(*store->get(a)), 0);
  EXPECT_EQ(store->counts("gpu").running, 4);
  EXPECT_EQ(store->counts("gpu").queued, 0);
  EXPECT_EQ(store->counts("net").queued, 1);
}

TEST_P(StoreTest, AJobForTheLoadedModelPassesOthersForAMinute) {
  const auto store = open();
  const int64_t start = 1'000'000;
  const auto add = [&](const char* model, int64_t at, int priority = 0) {
    return added(*store,
                 [&](Job& job) {
                   job.model_key = model;
                   job.created = at;
                   job.priority = priority;
                 })
        .id;
  };
  const std::string other = add("other", start), mine = add("mine", start), mine2 = add("mine", start + 10);
  EXPECT_EQ(store->claim("gpu", "w", "mine", start + 59'999)->id, mine);
  EXPECT_EQ(store->claim("gpu", "w", "mine", start + 60'000)->id, other) << "it has waited for a minute";
  EXPECT_EQ(store->claim("gpu", "w", "mine", start + 60'000)->id, mine2);

  const std::string first = add("other", start), far = [&] {
    for (int i = 0; i < 19; ++i) add("third", start);
    return add("mine", start);
  }();
  EXPECT_EQ(store->claim("gpu", "w", "mine", start)->id, first) << "it is the 21st";
  EXPECT_EQ(store->claim("gpu", "w", "mine", start)->id, far) << "it is the 20th";

  const std::string urgent = add("other", start, 1);
  add("mine", start);
  EXPECT_EQ(store->claim("gpu", "w", "mine", start)->id, urgent) << "a higher priority is not passed";
}

TEST_P(StoreTest, EveryModelInMemoryIsPreferred) {
  const auto store = open();
  const int64_t start = 1'000'000;
  Ids ids;
  for (const char* model : {"other", "a", "b"})
    ids.push_back(added(*store, [&](Job& job) { job.model_key = model, job.created = start; }).id);
  const LoadedModels loaded(std::vector<std::string>{"b", "a"});
  EXPECT_EQ(store->claim("gpu", "w", loaded, start)->id, ids[1]);
  EXPECT_EQ(store->claim("gpu", "w", loaded, start)->id, ids[2]);
  EXPECT_EQ(store->claim("gpu", "w", loaded, start)->id, ids[0]);
}

TEST_P(StoreTest, ClaimsCompanyByMergeKey) {
  const auto store = open();
  const auto add = [&](const char* key) { return added(*store, [&](Job& job) { job.merge_key = key; }).id; };
  const std::string a = add("x");
  add("y");
  add("");
  const std::string d = add("x");
  EXPECT_EQ(store->claim("gpu", "w", "", now_ms())->id, a);
  EXPECT_EQ(store->claim_like("gpu", "x", "w", now_ms())->id, d);
  EXPECT_FALSE(store->claim_like("gpu", "x", "w", now_ms()));
  EXPECT_FALSE(store->claim_like("gpu", "", "w", now_ms())) << "jobs without a key are not alike";
  EXPECT_FALSE(store->claim_like("net", "y", "w", now_ms()));
}

TEST_P(StoreTest, APausedQueueGivesNothing) {
  const auto store = open();
  EXPECT_FALSE(store->paused());
  store->set_paused(true);
  EXPECT_TRUE(open()->paused());
  const std::string id = added(*store, [](Job& job) { job.merge_key = "x"; }).id;
  EXPECT_FALSE(store->claim("gpu", "w", "", now_ms()));
  EXPECT_FALSE(store->claim_like("gpu", "x", "w", now_ms()));
  store->set_paused(false);
  EXPECT_EQ(store->claim("gpu", "w", "", now_ms())->id, id);
}

TEST_P(StoreTest, AnIdempotencyKeyReturnsTheFirstJobForADay) {
  const auto store = open();
  const int64_t start = 10 * 86'400'000LL;
  Job job = made();
  job.idempotency_key = "k";
  job.created = start;
  store->insert(job, 1);
  Job again = made();
  again.idempotency_key = "k";
  again.created = start + 1000;
  const auto second = store->insert(again, 1);  // although the queue is full
  EXPECT_TRUE(second.existed);
  EXPECT_EQ(second.job.id, job.id);
  again.request_hash = "other";
  EXPECT_EQ(code_of([&] { store->insert(again, 10); }), ErrorCode::Incompatible);
  again.created = start + 86'400'000;
  const auto third = store->insert(again, 10);
  EXPECT_FALSE(third.existed);
  EXPECT_EQ(third.job.id, again.id);
  EXPECT_EQ(store->get(job.id)->idempotency_key, "");
}

TEST_P(StoreTest, AFullQueueRefuses) {
  const auto store = open();
  store->insert(made(), 2);
  store->insert(made(), 2);
  EXPECT_EQ(code_of([&] { store->insert(made(), 2); }), ErrorCode::Refused);
  Job job = *store->claim("gpu", "w", "", now_ms());
  EXPECT_EQ(code_of([&] { store->insert(made(), 2); }), ErrorCode::Refused) << "running ones count";
  Job other = made();
  other.lane = "net";
  store->insert(other, 2);
  job.state = "failed";
  store->finish(job);
  store->insert(made(), 2);
}

TEST_P(StoreTest, CancelEndsAWaitingJobAndAsksARunningOne) {
  const auto store = open();
  const std::string runs = added(*store).id, waits = added(*store).id;
  Job job = *store->claim("gpu", "w", "", now_ms());
  EXPECT_FALSE(store->cancel(new_id(), 5));

  const auto cancelled = store->cancel(waits, 7);
  EXPECT_EQ(cancelled->state, "cancelled");
  EXPECT_EQ(cancelled->finished, 7);
  EXPECT_EQ(store->cancel(waits, 8)->finished, 7) << "cancelling twice is harmless";

  EXPECT_FALSE(store->cancel_requested(runs));
  EXPECT_EQ(store->cancel(runs, 9)->state, "cancelling");
  EXPECT_TRUE(store->cancel_requested(runs));
  EXPECT_EQ(store->counts("gpu").running, 1);
  EXPECT_TRUE(store->set_progress(job)) << "the worker still holds it";
  job.state = "cancelled";
  EXPECT_TRUE(store->finish(job));
  EXPECT_EQ(store->get(runs)->state, "cancelled");
}

// Whoever runs the job may be another process.
TEST_P(StoreTest, APauseIsStoredForTheProcessThatRunsTheJob) {
  const auto store = open(), other = open();
  const std::string runs = added(*store).id, given_back = added(*store).id, waits = added(*store).id;
  Job job = *store->claim("gpu", "w", "", now_ms());
  ASSERT_TRUE(store->claim("gpu", "w", "", now_ms()));
  EXPECT_FALSE(other->pause(new_id(), 5));

  const auto ended = other->pause(waits, 7);
  EXPECT_EQ(ended->state, "cancelled");
  EXPECT_EQ(ended->finished, 7);
  EXPECT_TRUE(ended->pause);
  EXPECT_EQ(other->pause(waits, 8)->finished, 7) << "pausing twice is harmless";

  EXPECT_EQ(other->pause(runs, 9)->state, "running");
  EXPECT_TRUE(store->cancel_requested(runs));
  EXPECT_TRUE(store->get(runs)->pause);
  EXPECT_TRUE(store->set_progress(job)) << "the worker still holds it";
  job.state = "cancelled";
  EXPECT_TRUE(store->finish(job));
  EXPECT_TRUE(other->get(runs)->pause) << "the job keeps why it ended";

  // A server that stops gives the job back; it must not run again.
  other->pause(given_back, 10);
  EXPECT_TRUE(store->give_back(given_back, "w"));
  EXPECT_EQ(store->get(given_back)->state, "cancelled");
  EXPECT_TRUE(store->get(given_back)->pause);
}

TEST_P(StoreTest, ACancelWinsOverAPause) {
  const auto store = open();
  const std::string first = added(*store).id, second = added(*store).id;
  store->claim("gpu", "w", "", now_ms());
  store->claim("gpu", "w", "", now_ms());
  store->pause(first, 5);
  EXPECT_FALSE(store->cancel(first, 6)->pause);
  EXPECT_EQ(store->get(first)->state, "cancelling");
  store->cancel(second, 5);
  EXPECT_FALSE(store->pause(second, 6)->pause);
  EXPECT_EQ(store->get(second)->state, "cancelling");
}

TEST_P(StoreTest, AJobGivenBackWaitsAtItsOldPlace) {
  const auto store = open();
  const std::string a = added(*store).id, b = added(*store).id;
  store->claim("gpu", "w", "", now_ms());
  store->add_image(a, "w", {.index = 0, .asset = "A"});
  EXPECT_TRUE(store->give_back(a, "w"));
  EXPECT_FALSE(store->give_back(a, "w"));
  EXPECT_EQ(ids_of(store->waiting("gpu")), (Ids{a, b}));
  EXPECT_TRUE(store->get(a)->images.empty());
  EXPECT_EQ(store->get(a)->started, 0);

  store->claim("gpu", "w", "", now_ms());
  store->cancel(a, now_ms());
  EXPECT_TRUE(store->give_back(a, "w"));
  EXPECT_EQ(store->get(a)->state, "cancelled") << "it must not run again";
}

TEST_P(StoreTest, WaitingJobsCanBeReordered) {
  const auto store = open();
  Ids ids;
  for (int i = 0; i < 5; ++i) ids.push_back(added(*store, [&](Job& job) { job.priority = i == 4 ? 1 : 0; }).id);
  store->cancel(ids[1], now_ms());
  EXPECT_EQ(ids_of(store->waiting("gpu")), (Ids{ids[4], ids[0], ids[2], ids[3]}));
  // A finished job, an unknown one and a repeated one are left out.
  store->reorder({ids[3], ids[1], new_id(), ids[0], ids[3], ids[4]});
  EXPECT_EQ(ids_of(store->waiting("gpu")), (Ids{ids[3], ids[0], ids[2], ids[4]}));

  EXPECT_TRUE(store->set_priority(ids[2], 9));
  EXPECT_EQ(store->waiting("gpu")[0].id, ids[2]);
  EXPECT_FALSE(store->set_priority(ids[1], 9));
  EXPECT_FALSE(store->set_priority(new_id(), 9));
}

TEST_P(StoreTest, OnlyFinalJobsAreRemoved) {
  const auto store = open();
  const std::string a = added(*store).id;
  EXPECT_FALSE(store->remove(a));
  store->cancel(a, now_ms());
  EXPECT_TRUE(store->remove(a));
  EXPECT_FALSE(store->get(a));
  EXPECT_FALSE(store->remove(a));
}

TEST_P(StoreTest, AnExpiredLeaseInterruptsTheJob) {
  const auto store = open();
  const std::string lost = added(*store).id, kept = added(*store).id, waits = added(*store).id;
  const int64_t start = 1'000'000;
  Job job = *store->claim("gpu", "dead", "", start);
  store->claim("gpu", "alive", "", start);
  store->renew("alive", {lost, kept}, start + 20'000);  // one of them is not its own
  EXPECT_TRUE(store->recover(start + 30'000).empty());
  const auto recovered = open()->recover(start + 30'001);
  ASSERT_EQ(ids_of(recovered), (Ids{lost}));
  EXPECT_EQ(recovered[0].state, "failed");
  EXPECT_EQ(recovered[0].error["code"], "interrupted");
  EXPECT_EQ(recovered[0].finished, start + 30'001);
  EXPECT_EQ(store->get(kept)->state, "running");
  EXPECT_EQ(store->get(waits)->state, "queued");
  store->renew("dead", {lost}, start + 30'002);  // it was only asleep
  job.state = "completed";
  EXPECT_FALSE(store->finish(job));
  EXPECT_EQ(store->get(lost)->state, "failed");
  EXPECT_TRUE(store->recover(start + 30'003).empty());
}

TEST_P(StoreTest, AJobThatItsWorkerHasLostIsInterrupted) {
  const auto store = open();
  const std::string lost = added(*store).id, kept = added(*store).id;
  const int64_t start = 1'000'000;
  store->claim("gpu", "w", "", start);
  store->claim("gpu", "w", "", start);
  store->renew("w", {}, start + 10'000);
  store->renew("w", {kept}, start + 20'000);
  EXPECT_EQ(ids_of(store->recover(start + 30'001)), (Ids{lost}));
  EXPECT_EQ(store->get(kept)->lease_until, start + 50'000);
}

TEST_P(StoreTest, TheFirstJobOfAKeyIsFound) {
  const auto store = open();
  Job job = made();
  EXPECT_FALSE(store->first_with_key(job)) << "it has no key";
  job.idempotency_key = "k";
  EXPECT_FALSE(store->first_with_key(job));
  const std::string first = store->insert(job, 10).job.id;
  Job again = made();
  again.idempotency_key = "k";
  EXPECT_EQ(store->first_with_key(again)->id, first);
  again.request_hash = "another";
  EXPECT_EQ(code_of([&] { store->first_with_key(again); }), ErrorCode::Incompatible);
  again.created = job.created + 86'400'000;
  EXPECT_FALSE(store->first_with_key(again)) << "a day later the key is free";
}

TEST_P(StoreTest, PruneDropsOldFinalJobs) {
  const auto store = open();
  const int64_t now = 100 * 86'400'000LL, month = 30 * 86'400'000LL;
  const auto ended = [&](int64_t at) {
    std::string id = added(*store, [](Job& job) { job.priority = 1; }).id;
    store->cancel(id, at);
    return id;
  };
  const std::string old = ended(now - month - 1), recent = ended(now - month);
  const std::string waits = added(*store, [](Job& job) { job.created = 1; }).id;
  store->prune(now);
  EXPECT_FALSE(store->get(old));
  EXPECT_TRUE(store->get(recent));
  EXPECT_TRUE(store->get(waits));
}

TEST_P(StoreTest, EventsAreNumberedAndKeptInARing) {
  const auto store = open();
  EXPECT_EQ(store->first_event(), 0);
  EXPECT_EQ(store->last_event(), 0);
  const int64_t first = store->add_event("job.queued", "{\"a\":1}", 5);
  const int64_t second = open()->add_event("queue", "{}", 6);
  EXPECT_LT(first, second);
  EXPECT_EQ(store->first_event(), first);
  EXPECT_EQ(store->last_event(), second);
  const auto after = store->events_after(first);
  ASSERT_EQ(after.size(), 1u);
  EXPECT_EQ(after[0].name, "queue");
  EXPECT_EQ(store->events_after(0)[0].data, "{\"a\":1}");
  EXPECT_EQ(store->events_after(0)[0].at, 5);

  int64_t last = 0;
  for (int i = 0; i < 1250; ++i) last = store->add_event("e", "{}", 7);
  EXPECT_GE(store->first_event(), last - 1100);
  EXPECT_LE(store->first_event(), last - 999);
  store->prune(now_ms());
  EXPECT_EQ(store->first_event(), last - 999);
  EXPECT_EQ(store->events_after(0).size(), 1000u);
}

// Each of 120 jobs is claimed by exactly one of four threads on two stores, and finished once.
TEST_P(StoreTest, TwoStoresClaimDisjointJobs) {
  const auto one = open(), two = open();
  std::set<std::string> submitted;
  for (int i = 0; i < 60; ++i) submitted.insert(added(*one).id);
  std::vector<Ids> claimed(4);
  {
    std::vector<std::jthread> threads;
    for (size_t w = 0; w < claimed.size(); ++w)
      threads.emplace_back([&, w] {
        JobStore& store = w % 2 == 0 ? *one : *two;
        const std::string worker = "w" + std::to_string(w);
        for (int idle = 0; idle < 20;) {
          auto job = store.claim("gpu", worker, "", now_ms());
          if (!job) {
            ++idle;
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
            continue;
          }
          claimed[w].push_back(job->id);
          job->state = "completed";
          EXPECT_TRUE(store.finish(*job));
        }
      });
    for (int i = 0; i < 60; ++i) submitted.insert(added(*two).id);
  }
  std::set<std::string> all;
  size_t count = 0;
  for (const Ids& ids : claimed) {
    all.insert(ids.begin(), ids.end());
    count += ids.size();
  }
  EXPECT_EQ(count, 120u);
  EXPECT_EQ(all, submitted);
}

TEST_P(StoreTest, TwoProcessesClaimDisjointJobs) {
  {
    const auto store = open();
    for (int i = 0; i < 80; ++i) added(*store);
  }
  const auto claimed = lines_of_processes(folder_, 2, [&](int number, std::ostream& lines) {
    const auto store = open();
    while (auto job = store->claim("gpu", "w" + std::to_string(number), "", now_ms())) {
      lines << job->id << "\n";
      job->state = "completed";
      EXPECT_TRUE(store->finish(*job));
    }
  });
  EXPECT_EQ(claimed.size(), 80u);
  EXPECT_EQ(std::set<std::string>(claimed.begin(), claimed.end()).size(), 80u);
  EXPECT_EQ(open()->list({.state = "completed", .limit = 1000}).size(), 80u);
}

TEST_P(StoreTest, ExactlyTheLimitIsAcceptedFromManyThreads) {
  const auto one = open(), two = open();
  std::atomic<int> accepted = 0, refused = 0;
  {
    std::vector<std::jthread> threads;
    threads.reserve(4);
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        for (int i = 0; i < 20; ++i) {
          try {
            (t % 2 == 0 ? *one : *two).insert(made(), 40);
            ++accepted;
          } catch (const Error& e) {
            EXPECT_EQ(e.code(), ErrorCode::Refused) << e.what();
            ++refused;
          }
        }
      });
  }
  EXPECT_EQ(accepted, 40);
  EXPECT_EQ(refused, 40);
  std::set<int64_t> places;
  for (const Job& job : one->waiting("gpu")) places.insert(job.seq);
  EXPECT_EQ(places.size(), 40u);
}

}  // namespace
}  // namespace flux2
