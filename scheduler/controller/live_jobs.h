// The jobs that have not ended. Those at rest, of which there may be thousands, are passed over until
// somebody looks one up to change it. Lives under the controller's mutex.
#pragma once

#include <map>
#include <string>

#include "scheduler/controller/live_job.h"

namespace tessera::scheduler {

class LiveJobs {
 public:
  void Add(LiveJob live);  // awake; one of another uid and name than those that are there
  // Null if it is not there; awake if it is. Stays where it is until it is taken out.
  LiveJob* Find(const std::string& uid);
  LiveJob* Find(const JobKey& key);
  LiveJob Take(const std::string& uid);  // of one that is there

  // By uid. Find may add to it while it is walked through.
  const std::map<std::string, LiveJob*>& awake() const { return awake_; }
  // Puts to rest what has nothing to wait for, to do, to store or to tell.
  void LetRest();

 private:
  std::map<std::string, LiveJob> jobs_;
  std::map<JobKey, std::string> uids_;
  std::map<std::string, LiveJob*> awake_;
};

}  // namespace tessera::scheduler
