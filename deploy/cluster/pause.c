// Holds a pod's namespaces until it is told to end. As PID 1 of a shared PID namespace it also collects the
// processes whose parents are gone: with SIGCHLD ignored the kernel does that itself.
#include <signal.h>
#include <unistd.h>

static void end(int number) {
  (void)number;
  _exit(0);
}

int main(void) {
  signal(SIGCHLD, SIG_IGN);
  signal(SIGINT, end);
  signal(SIGTERM, end);
  for (;;) pause();
}
