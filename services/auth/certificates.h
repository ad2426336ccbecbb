// A certificate authority of one's own, for a service that no public one vouches for.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tessera::services {

struct IssuedFiles {
  std::string authority;    // ca.pem, for clients (`--ca`)
  std::string certificate;  // server.pem
  std::string key;          // server.key
  bool new_authority = false;
};

inline constexpr absl::Duration kAuthorityLife = absl::Hours(24 * 3650);
inline constexpr absl::Duration kCertificateLife = absl::Hours(24 * 397);

// Makes ca.pem and ca.key in `folder` unless they are there, and a new server.pem and server.key for `hosts`
// (names or addresses). Keys are P-256 and 0600; each file is replaced as a whole, so that a running service
// may read them.
absl::StatusOr<IssuedFiles> IssueCertificates(const std::string& folder,
                                              const std::vector<std::string>& hosts, absl::Time now);

}  // namespace tessera::services
