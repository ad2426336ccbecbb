// NCCL between processes, one GPU each. With one GPU all is skipped.
#include <ATen/ATen.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "absl/strings/escaping.h"
#include "absl/time/clock.h"
#include "tests/status.h"
#include "tests/worker/cuda/gpu_fixture.h"
#include "worker/comm/gloo_world.h"

namespace tessera::worker {
namespace {

// Keys are files of a folder.
class FolderRendezvous final : public RendezvousClient {
 public:
  explicit FolderRendezvous(std::string folder) : folder_(std::move(folder)) {}
  absl::Status Set(const std::string& key, const std::string& value) override {
    const std::string path = Path(key), part = absl::StrCat(path, ".", ::getpid());
    std::ofstream(part, std::ios::binary) << value;
    std::filesystem::rename(part, path);
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> Get(const std::string& key, absl::Duration timeout) override {
    for (const absl::Time end = absl::Now() + timeout; absl::Now() < end;
         absl::SleepFor(absl::Milliseconds(5))) {
      std::ifstream file(Path(key), std::ios::binary);
      if (file) return std::string(std::istreambuf_iterator<char>(file), {});
    }
    return absl::DeadlineExceededError(key);
  }
  absl::StatusOr<int64_t> Add(const std::string&, int64_t) override {
    return absl::UnimplementedError("Add");
  }
  absl::StatusOr<bool> Check(const std::vector<std::string>&) override {
    return absl::UnimplementedError("Check");
  }
  absl::StatusOr<bool> Delete(const std::string&) override { return absl::UnimplementedError("Delete"); }
  absl::StatusOr<std::string> CompareSet(const std::string&, const std::string&,
                                         const std::string&) override {
    return absl::UnimplementedError("CompareSet");
  }
  absl::StatusOr<int64_t> Count() override { return absl::UnimplementedError("Count"); }

 private:
  std::string Path(const std::string& key) const { return folder_ + "/" + absl::WebSafeBase64Escape(key); }
  std::string folder_;
};

constexpr int kPassed = 0, kFailed = 1;

class NcclGpuTest : public GpuTest {
 protected:
  // `body` on each rank in a process of its own, which has not touched CUDA; exit codes by rank.
  std::vector<int> RunProcesses(int ranks, const std::function<void(int rank, World& world)>& body) {
    char folder[] = "/tmp/tessera-nccl-XXXXXX";
    EXPECT_NE(::mkdtemp(folder), nullptr);
    std::vector<pid_t> children;
    for (int rank = 0; rank < ranks; ++rank) {
      const pid_t child = ::fork();
      if (child == 0) ::_exit(RunRank(folder, rank, ranks, body));
      children.push_back(child);
    }
    std::vector<int> codes;
    for (const pid_t child : children) {
      int status = 0;
      ::waitpid(child, &status, 0);
      codes.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    }
    std::filesystem::remove_all(folder);
    return codes;
  }

  static int RunRank(const std::string& folder, int rank, int ranks,
                     const std::function<void(int rank, World& world)>& body) {
    const auto gpu = OpenGpuPlugin();
    if (!gpu.ok() || !(*gpu)->Use(rank).ok()) return kFailed;
    GlooOptions gloo;
    gloo.rank = rank;
    gloo.size = ranks;
    auto host = MakeGlooWorldOverFile(gloo, folder + "/gloo");
    if (!host.ok()) return kFailed;
    FolderRendezvous rendezvous(folder);
    NcclOptions options;
    options.rank = rank;
    options.size = ranks;
    options.collective_timeout = absl::Seconds(20);
    auto world = (*gpu)->MakeWorld(options, &rendezvous, *std::move(host));
    if (!world.ok()) {
      std::fprintf(stderr, "rank %d: %s\n", rank, world.status().ToString().c_str());
      return kFailed;
    }
    body(rank, **world);
    return testing::Test::HasFailure() ? kFailed : kPassed;
  }

  // The devices are counted in a child: a process that has used CUDA can't fork one that will.
  void NeedForProcesses(int devices) {
    const pid_t child = ::fork();
    if (child == 0) {
      const auto gpu = OpenGpuPlugin();
      if (!gpu.ok()) ::_exit(0);
      const auto inventory = (*gpu)->Inventory();
      ::_exit(inventory.ok() ? static_cast<int>(inventory->devices.size()) : 0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    const int found = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    if (found < devices) GTEST_SKIP() << "needs " << devices << " GPUs, there are " << found;
  }
};

#define TESSERA_NEEDS_GPUS_FOR_PROCESSES(count) \
  NeedForProcesses(count);                      \
  if (IsSkipped()) return

at::TensorOptions Floats() { return at::device(at::kCUDA).dtype(at::kFloat); }

TEST_F(NcclGpuTest, CollectivesAreThoseOfGloo) {
  TESSERA_NEEDS_GPUS_FOR_PROCESSES(2);
  const auto codes = RunProcesses(2, [](int rank, World& world) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      const at::Tensor t = at::full({900}, rank + 1, Floats().dtype(type));
      ASSERT_OK(world.all().AllReduceSum(t)->Wait());
      EXPECT_TRUE(at::equal(t.cpu(), at::full({900}, 3, type)));
    }
    const at::Tensor in = at::arange(8, Floats()) * (rank + 1);
    at::Tensor out = at::empty({4}, Floats());
    ASSERT_OK(world.all().ReduceScatterSum(in, out)->Wait());
    EXPECT_TRUE(at::equal(out.cpu(), (at::arange(4, at::kFloat) + 4 * rank) * 3));
    at::Tensor whole = at::empty({8}, Floats());
    ASSERT_OK(world.all().AllGather(out, whole));
    EXPECT_TRUE(at::equal(whole.cpu(), at::arange(8, at::kFloat) * 3));
    const at::Tensor sent = at::full({5}, rank, Floats());
    ASSERT_OK(world.all().Broadcast(sent, 1));
    EXPECT_TRUE(at::equal(sent.cpu(), at::ones({5})));
    const at::Tensor host = at::full({3}, rank + 1, at::kDouble);  // over Gloo
    ASSERT_OK(world.all().AllReduceSum(host)->Wait());
    EXPECT_TRUE(at::equal(host, at::full({3}, 3, at::kDouble)));
  });
  EXPECT_EQ(codes, std::vector<int>(2, kPassed));
}

TEST_F(NcclGpuTest, GroupsAreShrunkFromTheWorldAndWorkBesideEachOther) {
  TESSERA_NEEDS_GPUS_FOR_PROCESSES(3);
  const auto codes = RunProcesses(3, [](int rank, World& world) {
    std::vector<std::unique_ptr<Work>> works;
    std::vector<at::Tensor> tensors;
    for (const std::vector<int>& ranks :
         {std::vector<int>{0, 1}, std::vector<int>{1, 2}, std::vector<int>{0, 2}}) {
      if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) continue;
      const auto group = world.Group(ranks);
      ASSERT_OK(group);
      tensors.push_back(at::full({1 << 20}, rank + 1, Floats()));
      works.push_back((*group)->AllReduceSum(tensors.back()));
    }
    for (auto& work : works) ASSERT_OK(work->Wait());
    for (const at::Tensor& tensor : tensors) EXPECT_GE(tensor[0].item<float>(), 3);
  });
  EXPECT_EQ(codes, std::vector<int>(3, kPassed));
}

TEST_F(NcclGpuTest, ALostPeerEndsTheOthersWaitWithUnavailable) {
  TESSERA_NEEDS_GPUS_FOR_PROCESSES(2);
  const auto codes = RunProcesses(2, [](int rank, World& world) {
    const at::Tensor t = at::ones({1 << 20}, Floats());
    ASSERT_OK(world.all().AllReduceSum(t)->Wait());
    if (rank == 1) ::_exit(kPassed);
    const auto group = world.all().AllReduceSum(t);
    (void)group->Wait();
    t.cpu();  // returns when the collective was aborted
    EXPECT_TRUE(absl::IsUnavailable(world.all().AllReduceSum(t)->Wait()));
  });
  EXPECT_EQ(codes, std::vector<int>(2, kPassed));
}

}  // namespace
}  // namespace tessera::worker
