// tessera context, certs: which service, and how it is trusted.
#include <filesystem>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "services/auth/certificates.h"
#include "services/cli/commands.h"
#include "services/cli/contexts.h"

namespace tessera::cli {
namespace {

std::string Absolute(const Session& session, const std::string& path) {
  if (path.empty()) return "";
  return (std::filesystem::path(session.environment.working_directory) / path).lexically_normal().string();
}

int List(Session& session) {
  const auto contexts = ReadContexts(ContextsPath(session.environment.variable));
  if (!contexts.ok()) return session.Fail(contexts.status());
  std::vector<std::vector<std::string>> rows;
  const auto mark = [&](const std::string& name) { return contexts->current == name ? "*" : ""; };
  rows.push_back({mark(kLocalContext), kLocalContext, "the daemon of this machine", "", ""});
  for (const auto& [name, context] : contexts->by_name) {
    rows.push_back({mark(name), name, context.address, context.token_file, context.ca_file});
  }
  return session.PrintRows({{"current"}, {"name"}, {"address"}, {"token file", false, 1}, {"ca", false, 2}},
                           rows);
}

int SayCurrent(const Session& session, const std::string& name) {
  if (!session.PrintJson({{"current", name}}))
    *session.environment.out << name << " is the current context\n";
  return kSucceeded;
}

int Add(Session& session, const std::string& name, Context context) {
  if (name == kLocalContext || name.empty()) {
    return session.Fail(absl::InvalidArgumentError("'local' is this machine's daemon; choose another name"));
  }
  if (!absl::StartsWith(context.address, "https://") && !IsLoopback(context.address)) {
    return session.Fail(absl::InvalidArgumentError(
        absl::StrCat("'", context.address, "' is not reached encrypted; use https://host:port")));
  }
  context.token_file = Absolute(session, context.token_file);
  context.ca_file = Absolute(session, context.ca_file);
  const std::string path = ContextsPath(session.environment.variable);
  auto contexts = ReadContexts(path);
  if (!contexts.ok()) return session.Fail(contexts.status());
  contexts->by_name[name] = context;
  contexts->current = name;
  if (absl::Status written = WriteContexts(path, *contexts); !written.ok()) return session.Fail(written);
  return SayCurrent(session, name);
}

int UseOrRemove(Session& session, const std::string& name, bool remove) {
  const std::string path = ContextsPath(session.environment.variable);
  auto contexts = ReadContexts(path);
  if (!contexts.ok()) return session.Fail(contexts.status());
  if ((name != kLocalContext || remove) && !contexts->by_name.contains(name)) {
    return session.Fail(absl::InvalidArgumentError(absl::StrCat("there is no context '", name, "'")));
  }
  if (remove) {
    contexts->by_name.erase(name);
    if (contexts->current == name) contexts->current = kLocalContext;
  } else {
    contexts->current = name;
  }
  if (absl::Status written = WriteContexts(path, *contexts); !written.ok()) return session.Fail(written);
  return SayCurrent(session, contexts->current);
}

int Certs(Session& session, const std::string& folder, std::vector<std::string> hosts) {
  for (const char* here : {"localhost", "127.0.0.1", "::1"}) hosts.push_back(here);
  const std::string path =
      folder.empty() ? session.connection.state_directory + "/tls" : Absolute(session, folder);
  const auto issued = services::IssueCertificates(path, hosts, absl::Now());
  if (!issued.ok()) return session.Fail(issued.status());
  const int64_t days = absl::ToInt64Hours(services::kCertificateLife) / 24;
  if (session.PrintJson({{"certificate", issued->certificate},
                         {"key", issued->key},
                         {"authority", issued->authority},
                         {"newAuthority", issued->new_authority},
                         {"days", days}})) {
    return kSucceeded;
  }
  *session.environment.out << absl::StrCat(
      issued->new_authority ? "made an authority and a certificate"
                            : "made another certificate of the same authority",
      ", good for ", days, " days\n  ", issued->certificate, "\n  ", issued->key, "\n  ", issued->authority,
      "   (give this one to clients)\n\n", "tesserad --tls-host 0.0.0.0 --tls-cert ", issued->certificate,
      " --tls-key ", issued->key, "\n",
      "tessera context add NAME --address https://HOST:PORT --token-file TOKEN --ca ca.pem\n",
      "A running tesserad takes a new certificate by itself.\n");
  return kSucceeded;
}

}  // namespace

void AddContextCommands(CLI::App& app, Session& session) {
  CLI::App* context = app.add_subcommand("context", "Choose the service that the commands talk to");
  context->require_subcommand(1);
  context->footer("Example:\n  tessera context list\n");
  CLI::App* list = context->add_subcommand("list", "Show the contexts");
  list->footer("Example:\n  tessera context list\n");
  list->callback([&session] { session.action = [&session] { return List(session); }; });

  CLI::App* add = context->add_subcommand("add", "Keep a service under a name and use it");
  auto name = std::make_shared<std::string>();
  add->add_option("NAME", *name, "Its name here")->required();
  add->footer(
      "Takes --address, --token-file and --ca.\n\nExample:\n"
      "  tessera context add lab --address https://lab:7443 --token-file lab.token --ca lab-ca.pem\n");
  add->callback([&session, name] {
    session.action = [&session, name] {
      return Add(session, *name,
                 {session.connection.address, session.connection.token_file, session.connection.ca_file});
    };
  });
  for (const bool remove : {false, true}) {
    CLI::App* command =
        context->add_subcommand(remove ? "remove" : "use", remove ? "Forget a context" : "Use a context");
    auto which = std::make_shared<std::string>();
    command->add_option("NAME", *which, remove ? "Of a context" : "Of a context, or local")->required();
    command->footer(absl::StrCat("Example:\n  tessera context ", remove ? "remove lab\n" : "use local\n"));
    command->callback([&session, which, remove] {
      session.action = [&session, which, remove] { return UseOrRemove(session, *which, remove); };
    });
  }

  CLI::App* certs =
      app.add_subcommand("certs", "Make a certificate for tesserad, and an authority to sign it");
  auto folder = std::make_shared<std::string>();
  auto hosts = std::make_shared<std::vector<std::string>>();
  certs->add_option("--out", *folder, "Where the files go; default: tls in the state directory");
  certs->add_option("--host", *hosts, "Name or address by which clients reach the service; may be repeated");
  certs->footer("Example:\n  tessera certs --host gpu-1 --host 10.0.0.7 --out tls\n");
  certs->callback([&session, folder, hosts] {
    session.action = [&session, folder, hosts] { return Certs(session, *folder, *hosts); };
  });
}

}  // namespace tessera::cli
