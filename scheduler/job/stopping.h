// Ending a group of workers: asked first, then told, then made to.
#pragma once

#include "scheduler/job/reconcile.h"

namespace tessera::job {

bool AnyRunning(const Observed& observed);
bool AllEnded(const Observed& observed, Outcome outcome);  // false for no workers

// The job is to stop (cancel, suspend) and its epoch is launched: ask, wait for the
// drain deadline (or, while any evaluates, checkpoints or exports, the longer one of that), terminate
// once, kill. Workers that have not begun to train have nothing
// to save and are terminated at once. Adds actions to `decision`; true when nothing
// runs any more.
bool Drain(const JobView& view, const Observed& observed, absl::Time now, Decision& decision);

}  // namespace tessera::job
