#include "scheduler/launch/child_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sstream>

#include "scheduler/launch/process_identity.h"
#include "tests/patience.h"
#include "tests/status.h"

namespace tessera::scheduler {
namespace {

using ::testing::HasSubstr;

ProcessRequest Shell(const std::string& script) { return {{"/bin/sh", "-c", script}, {}}; }

TEST(ChildProcessTest, InputOutputErrorAndExitCodeArrive) {
  auto output = RunToEnd(Shell("cat; echo oops >&2; exit 7"), "hello", kPatience);
  ASSERT_OK(output);
  EXPECT_EQ(output->out, "hello");
  EXPECT_EQ(output->err, "oops\n");
  EXPECT_EQ(output->exit_code, 7);
}

TEST(ChildProcessTest, MoreInputAndOutputThanAPipeHoldsPassesThrough) {
  const std::string input(3'000'000, 'x');
  auto output = RunToEnd({{"/bin/cat"}, {}}, input, kPatience);
  ASSERT_OK(output);
  EXPECT_EQ(output->out.size(), input.size());
}

TEST(ChildProcessTest, AProgramThatIgnoresItsInputIsNoError) {
  auto output = RunToEnd(Shell("exec <&-; echo done"), std::string(3'000'000, 'x'), kPatience);
  ASSERT_OK(output);
  EXPECT_EQ(output->out, "done\n");
}

TEST(ChildProcessTest, AProgramThatHangsIsKilledAtTheTimeout) {
  auto output = RunToEnd({{"/bin/sleep", "1000"}, {}}, "", absl::Milliseconds(50));
  EXPECT_TRUE(absl::IsDeadlineExceeded(output.status()));
  EXPECT_THAT(output.status().message(), HasSubstr("/bin/sleep"));
}

TEST(ChildProcessTest, AProgramThatClosesItsOutputsAndHangsIsKilledAtTheTimeout) {
  auto output = RunToEnd(Shell("exec >&- 2>&-; sleep 1000"), "", absl::Milliseconds(100));
  EXPECT_TRUE(absl::IsDeadlineExceeded(output.status())) << output.status();
}

TEST(ChildProcessTest, AStopEndsItAtOnce) {
  std::stop_source stop;
  stop.request_stop();
  auto output = RunToEnd(Shell("sleep 1000"), "", absl::Hours(1), stop.get_token());
  EXPECT_TRUE(absl::IsCancelled(output.status())) << output.status();
}

TEST(ChildProcessTest, AMissingProgramIsNamed) {
  auto output = RunToEnd({{"/nowhere/tool"}, {}}, "", absl::Seconds(1));
  EXPECT_TRUE(absl::IsNotFound(output.status())) << output.status();
  EXPECT_THAT(output.status().message(), HasSubstr("/nowhere/tool"));
}

TEST(ChildProcessTest, TheEnvironmentIsReplacedByName) {
  ProcessRequest request = Shell("echo $HOME $TESSERA_X");
  request.env = {{"HOME", "/over"}, {"TESSERA_X", "a b;c"}};
  auto output = RunToEnd(request, "", kPatience);
  ASSERT_OK(output);
  EXPECT_EQ(output->out, "/over a b;c\n");
}

TEST(ChildProcessTest, NoDescriptorButTheThreeIsInherited) {
  int fds[2];
  ASSERT_EQ(::pipe(fds), 0);  // not close-on-exec
  auto output = RunToEnd(Shell("ls /proc/self/fd | wc -l"), "", kPatience);
  ::close(fds[0]);
  ::close(fds[1]);
  ASSERT_OK(output);
  EXPECT_EQ(std::stoi(output->out), 4) << "0, 1, 2 and the listing's own";
}

TEST(ChildProcessTest, ItLeadsASessionOfItsOwn) {
  auto output = RunToEnd(Shell("cut -d' ' -f1,6 /proc/$$/stat"), "", kPatience);
  ASSERT_OK(output);
  int pid = 0, session = 0;
  ASSERT_TRUE(std::istringstream(output->out) >> pid >> session) << output->out;
  EXPECT_EQ(pid, session);
}

TEST(ProcessIdentityTest, AnotherProcessWithTheSamePidIsNotMistaken) {
  auto self = IdentityOf(::getpid());
  ASSERT_TRUE(self.has_value());
  EXPECT_TRUE(IsAlive(*self));
  ProcessIdentity recycled = *self;
  recycled.start -= 1;
  EXPECT_FALSE(IsAlive(recycled));
}

TEST(ProcessIdentityTest, AZombieIsThereButNotAlive) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  siginfo_t info;
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  auto identity = IdentityOf(child);
  ASSERT_TRUE(identity.has_value());
  EXPECT_FALSE(IsAlive(*identity));
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(IdentityOf(child).has_value());
}

}  // namespace
}  // namespace tessera::scheduler
