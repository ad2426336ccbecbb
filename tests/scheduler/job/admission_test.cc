#include "scheduler/job/admission.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace tessera::job {
namespace {

using ::testing::HasSubstr;

const absl::Time kNow = absl::FromUnixSeconds(1000);

Claim Waiting(std::string id, int64_t megabytes, int age = 0, int priority = 0) {
  Claim claim;
  claim.id = claim.name = std::move(id);
  claim.demand.bytes[""] = megabytes * 1'000'000;
  claim.created = absl::FromUnixSeconds(1000 - age);
  claim.priority = priority;
  claim.waits = true;
  return claim;
}
Claim Holding(std::string id, int64_t megabytes) {
  Claim claim = Waiting(std::move(id), megabytes);
  claim.waits = false;
  claim.holds = true;
  return claim;
}

std::map<std::string, NodeMemory> Machine(int64_t for_jobs, int64_t available = -1) {
  return {{"", {.for_jobs = for_jobs, .available = available}}};
}

TEST(AdmissionTest, OlderGoesFirstAndHigherPriorityBeforeIt) {
  const Claim claims[] = {Waiting("young", 600, 1), Waiting("old", 600, 9), Waiting("urgent", 600, 0, 5)};
  auto verdicts = Admit(claims, Machine(1'300'000'000), kNow);
  EXPECT_TRUE(verdicts["urgent"].admitted);
  EXPECT_TRUE(verdicts["old"].admitted);
  EXPECT_FALSE(verdicts["young"].admitted);
}

TEST(AdmissionTest, SaysWithNumbersWhyAJobWaits) {
  const Claim claims[] = {Holding("a", 700), Waiting("b", 500, 5), Waiting("c", 100, 1)};
  auto verdicts = Admit(claims, Machine(1'000'000'000), kNow);
  EXPECT_EQ(verdicts["b"].message,
            "needs 500 MB; 300 MB of 1000 MB are free; starts when 200 MB more are: 'a' holds 700 MB");
  EXPECT_THAT(verdicts["c"].message, HasSubstr("waits behind job 'b', which needs 500 MB"));
  EXPECT_FALSE(verdicts["c"].admitted) << "a small job must not starve a large one before it";
}

TEST(AdmissionTest, SmallJobsOvertakeALargeOneForAWhileOnly) {
  Claim large = Waiting("large", 800, 9);
  Claim small = Waiting("small", 100, 1);
  Claim too_large = Waiting("too_large", 500, 0);
  large.waiting_since = small.waiting_since = too_large.waiting_since = kNow - absl::Minutes(1);
  const Claim young[] = {Holding("a", 700), large, small, too_large};
  auto verdicts = Admit(young, Machine(1'000'000'000), kNow);
  EXPECT_FALSE(verdicts["large"].admitted);
  EXPECT_TRUE(verdicts["small"].admitted);
  EXPECT_FALSE(verdicts["too_large"].admitted);
  verdicts = Admit(young, Machine(1'000'000'000), kNow + kBackfillWindow);
  EXPECT_FALSE(verdicts["small"].admitted);
  EXPECT_THAT(verdicts["small"].message, HasSubstr("waits behind job 'large'"));
}

TEST(AdmissionTest, AJobLargerThanTheMachineHoldsBackNobody) {
  const Claim claims[] = {Waiting("huge", 5000, 9), Waiting("small", 100, 1)};
  auto verdicts = Admit(claims, Machine(1'000'000'000), kNow);
  EXPECT_FALSE(verdicts["huge"].admitted);
  EXPECT_THAT(verdicts["huge"].message, HasSubstr("more than the 1000 MB of this machine"));
  EXPECT_TRUE(verdicts["small"].admitted);
}

TEST(AdmissionTest, UnknownCapacityAdmitsEverything) {
  const Claim claims[] = {Holding("a", 700), Waiting("b", 50000)};
  EXPECT_TRUE(Admit(claims, Machine(0), kNow)["b"].admitted);
}

TEST(AdmissionTest, NeverHandsOutMoreThanThereIs) {
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    std::vector<Claim> claims;
    int64_t held = 0;
    for (int i = 0; i < 8; ++i) {
      const auto size = static_cast<int64_t>(random() % 500);
      claims.push_back(
          Waiting(std::to_string(i), size, static_cast<int>(random() % 5), static_cast<int>(random() % 3)));
      if (random() % 3 == 0 && held + size * 1'000'000 <= 1'000'000'000) {
        claims.back().waits = false;
        claims.back().holds = true;
        held += size * 1'000'000;
      }
    }
    auto verdicts = Admit(claims, Machine(1'000'000'000), kNow);
    for (const Claim& claim : claims) {
      if (claim.waits && verdicts.at(claim.id).admitted) held += claim.demand.bytes.at("");
      if (claim.waits) EXPECT_FALSE(verdicts.at(claim.id).message.empty());
    }
    EXPECT_LE(held, 1'000'000'000);
  }
}

TEST(AdmissionTest, WhatOtherProgramsUseIsNotFree) {
  Claim holding = Holding("a", 400);
  holding.resident[""] = 100'000'000;  // it is going to take 300 MB more
  const Claim claims[] = {holding, Waiting("b", 300)};
  EXPECT_TRUE(Admit(claims, Machine(1'000'000'000, 600'000'000), kNow)["b"].admitted);
  const Verdict verdict = Admit(claims, Machine(1'000'000'000, 599'000'000), kNow)["b"];
  EXPECT_FALSE(verdict.admitted);
  EXPECT_EQ(
      verdict.message,
      "needs 300 MB; 299 MB of 1000 MB are free; starts when 1 MB more are; other programs use 301 MB that "
      "jobs could have");
  holding.resident[""] = 450'000'000;  // more than was predicted
  const Claim over[] = {holding, Waiting("b", 300)};
  EXPECT_TRUE(Admit(over, Machine(1'000'000'000, 300'000'000), kNow)["b"].admitted);
}

Claim Gpus(Claim claim, int gpus) {
  claim.demand.gpus = gpus;
  return claim;
}

TEST(AdmissionTest, AGpuIsGivenToOneJobAtATime) {
  const Claim claims[] = {Gpus(Holding("a", 10), 1), Gpus(Waiting("b", 10, 5), 2),
                          Gpus(Waiting("c", 10, 3), 1), Gpus(Waiting("d", 10, 1), 1)};
  auto verdicts = Admit(claims, Machine(1'000'000'000), kNow, 2);
  EXPECT_EQ(verdicts["b"].message, "needs 2 GPUs; 1 of 2 are free; starts when 1 more are: 'a' holds 1");
  EXPECT_FALSE(verdicts["b"].admitted);
  EXPECT_THAT(verdicts["c"].message, HasSubstr("waits behind job 'b', which needs 2 GPUs"));
  EXPECT_FALSE(verdicts["d"].admitted);
  EXPECT_TRUE(Admit(claims, Machine(1'000'000'000), kNow, 0)["b"].admitted)
      << "how many there are is not known";
}

TEST(AdmissionTest, JobsOnTheCpuDoNotWaitBehindOneThatLacksGpusAlone) {
  const Claim claims[] = {Gpus(Holding("a", 10), 2), Gpus(Waiting("b", 10, 5), 1), Waiting("c", 10, 3),
                          Gpus(Waiting("d", 5000, 9), 1)};
  auto verdicts = Admit(claims, Machine(1'000'000'000), kNow, 2);
  EXPECT_FALSE(verdicts["b"].admitted);
  EXPECT_EQ(verdicts["c"].message, "given 10 MB of 1000 MB");
}

TEST(AdmissionTest, AJobThatLacksMemoryKeepsTheGpusItWaitsFor) {
  const Claim claims[] = {Holding("a", 900), Gpus(Waiting("b", 500, 5), 1), Gpus(Waiting("c", 10, 3), 1)};
  EXPECT_FALSE(Admit(claims, Machine(1'000'000'000), kNow, 1)["c"].admitted);
}

TEST(AdmissionTest, MoreGpusThanThereAreHoldBackNobody) {
  const Claim claims[] = {Gpus(Waiting("b", 10, 5), 3), Gpus(Waiting("c", 10, 3), 2)};
  auto verdicts = Admit(claims, Machine(1'000'000'000), kNow, 2);
  EXPECT_EQ(verdicts["b"].message, "needs 3 GPUs, more than the 2 of this machine");
  EXPECT_EQ(verdicts["c"].message, "given 10 MB of 1000 MB, 2 of 2 GPUs");
}

TEST(AdmissionTest, EachNodeIsCountedForItself) {
  const std::map<std::string, NodeMemory> nodes{
      {"a", {.for_jobs = 1'000'000'000}}, {"b", {.for_jobs = 1'000'000'000}}, {"unknown", {}}};
  Claim holding = Holding("old", 0), wide = Waiting("wide", 0, 9), narrow = Waiting("narrow", 0, 1),
        elsewhere = Waiting("elsewhere", 0), huge = Waiting("huge", 0, 8);
  holding.demand.bytes = {{"a", 100'000'000}, {"b", 800'000'000}};
  wide.demand.bytes = {{"a", 500'000'000}, {"b", 300'000'000}};
  narrow.demand.bytes = {{"a", 900'000'000}};
  elsewhere.demand.bytes = {{"unknown", 5'000'000'000}};
  huge.demand.bytes = {{"b", 1'500'000'000}};
  wide.waiting_since = kNow;
  const Claim claims[] = {holding, wide, narrow, elsewhere, huge};
  auto verdicts = Admit(claims, nodes, kNow);
  EXPECT_EQ(verdicts["wide"].message,
            "needs 300 MB on node 'b'; 200 MB of 1000 MB are free; starts when 100 MB more are: 'old' holds "
            "800 MB");
  EXPECT_EQ(verdicts["narrow"].message, "given 900 MB of 1000 MB on node 'a'");
  EXPECT_TRUE(verdicts["elsewhere"].admitted);
  Claim lost = Waiting("lost", 0), all = Waiting("all", 0);
  lost.demand.bytes = {{"gone", 1}};
  EXPECT_EQ(Admit({&lost, 1}, nodes, kNow)["lost"].message,
            "waits for node 'gone', which it was planned for, to report again");
  all.demand.bytes = {{"", 100'000'000}, {"a", 100'000'000}};
  auto capped = nodes;
  capped[""] = {.for_jobs = 50'000'000};
  EXPECT_EQ(Admit({&all, 1}, capped, kNow)["all"].message,
            "needs 100 MB, more than the 50 MB of all nodes together");
  EXPECT_EQ(verdicts["huge"].message, "needs 1500 MB, more than the 1000 MB of node 'b'");
  verdicts = Admit(claims, nodes, kNow + kBackfillWindow);
  EXPECT_FALSE(verdicts["narrow"].admitted) << "it is on a node of a job that has waited too long";
  EXPECT_TRUE(verdicts["elsewhere"].admitted);
}

}  // namespace
}  // namespace tessera::job
