#include "scheduler/kube/api_client.h"

#include <algorithm>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>

#include "absl/base/thread_annotations.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"

namespace tessera::scheduler {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using Json = nlohmann::json;
using Error = boost::system::error_code;

constexpr auto kCallTimeout = std::chrono::seconds(30);
constexpr auto kWatchPoll = std::chrono::seconds(1);
constexpr int kTries = 4;
constexpr double kRate = 50;
constexpr double kBurst = 100;
constexpr uint64_t kMaxAnswer = 256u << 20;
constexpr int kWatchSeconds = 300;

struct Answer {
  int status = 0;
  std::string body;
  absl::Duration retry_after = absl::ZeroDuration();
};

// One TLS connection; lives on the thread that calls.
class Connection {
 public:
  Connection(const KubeConfig& config, asio::ssl::context& tls) : config_(config), stream_(io_, tls) {}

  absl::Status Open() {
    Error error;
    asio::ip::tcp::resolver resolver(io_);
    const auto endpoints = resolver.resolve(config_.host, config_.port, error);
    if (error) return Failed("finding", error);
    if (asio::ip::make_address(config_.host, error); error) {
      SSL_set_tlsext_host_name(stream_.native_handle(), config_.host.c_str());
    }
    stream_.set_verify_callback(asio::ssl::host_name_verification(config_.host));
    error = Await(kCallTimeout, [&](auto done) {
      beast::get_lowest_layer(stream_).async_connect(endpoints, [done](Error e, const auto&) { done(e); });
    });
    if (error) return Failed("connecting to", error);
    error = Await(kCallTimeout, [&](auto done) {
      stream_.async_handshake(asio::ssl::stream_base::client, [done](Error e) { done(e); });
    });
    return error ? Failed("greeting", error) : absl::OkStatus();
  }

  absl::Status Send(const http::request<http::string_body>& request) {
    const Error error = Await(kCallTimeout, [&](auto done) {
      http::async_write(stream_, request, [done](Error e, size_t) { done(e); });
    });
    return error ? Failed("writing to", error) : absl::OkStatus();
  }

  absl::StatusOr<Answer> Receive() {
    http::response_parser<http::string_body> parser;
    parser.body_limit(kMaxAnswer);
    const Error error = Await(kCallTimeout, [&](auto done) {
      http::async_read(stream_, buffer_, parser, [done](Error e, size_t) { done(e); });
    });
    if (error) return Failed("reading from", error);
    reusable_ = parser.get().keep_alive();
    Answer answer{.status = static_cast<int>(parser.get().result_int()),
                  .body = std::move(parser.get().body())};
    int seconds = 0;
    const auto wait = parser.get()[http::field::retry_after];
    if (absl::SimpleAtoi(absl::string_view(wait.data(), wait.size()), &seconds)) {
      answer.retry_after = absl::Seconds(std::clamp(seconds, 0, 30));
    }
    return answer;
  }

  // The body of an answer that goes on, as it comes.
  absl::Status ReceivePieces(const std::function<bool(std::string_view)>& take,
                             const std::function<bool()>& stop) {
    http::response_parser<http::buffer_body> parser;
    parser.body_limit(boost::none);
    Error error = Await(kCallTimeout, [&](auto done) {
      http::async_read_header(stream_, buffer_, parser, [done](Error e, size_t) { done(e); });
    });
    if (error) return Failed("reading from", error);
    std::string refusal;
    std::vector<char> piece(1 << 16);
    while (!parser.is_done()) {
      parser.get().body().data = piece.data();
      parser.get().body().size = piece.size();
      error = AwaitOrStop(stop, [&](auto done) {
        http::async_read_some(stream_, buffer_, parser, [done](Error e, size_t) { done(e); });
      });
      if (stop()) return absl::OkStatus();
      const std::string_view text(piece.data(), piece.size() - parser.get().body().size);
      if (parser.get().result_int() / 100 != 2) {
        refusal.append(text);
      } else if (!text.empty() && !take(text)) {
        return absl::OkStatus();
      }
      if (error && error != http::error::need_buffer) return Failed("following", error);
    }
    return StatusOfAnswer(static_cast<int>(parser.get().result_int()), refusal);
  }

  bool reusable() const { return reusable_; }

 private:
  template <typename Start>
  Error Await(std::chrono::steady_clock::duration patience, const Start& start) {
    Error result = asio::error::operation_aborted;
    beast::get_lowest_layer(stream_).expires_after(patience);
    start([&result](Error e) { result = e; });
    io_.restart();
    io_.run();
    return result;
  }

  template <typename Start>
  Error AwaitOrStop(const std::function<bool()>& stop, const Start& start) {
    Error result = asio::error::operation_aborted;
    bool finished = false;
    beast::get_lowest_layer(stream_).expires_after(std::chrono::seconds(kWatchSeconds + 30));
    start([&](Error e) {
      result = e;
      finished = true;
    });
    io_.restart();
    do {
      io_.run_for(kWatchPoll);
    } while (!finished && !stop());
    if (!finished) {
      beast::get_lowest_layer(stream_).cancel();
      io_.run();  // the handler refers to this frame
    }
    return result;
  }

  absl::Status Failed(const char* doing, const Error& error) const {
    return absl::UnavailableError(absl::StrCat(doing, " the Kubernetes API server ", config_.host, ":",
                                               config_.port, ": ", error.message()));
  }

  const KubeConfig& config_;
  asio::io_context io_;
  beast::ssl_stream<beast::tcp_stream> stream_;
  beast::flat_buffer buffer_;
  bool reusable_ = false;
};

class HttpsApiClient final : public ApiClient {
 public:
  explicit HttpsApiClient(const KubeConfig& config) : config_(config) {}

  absl::Status Init() {
    Error error;
    tls_.set_verify_mode(asio::ssl::verify_peer);
    if (config_.ca_pem.empty()) {
      tls_.set_default_verify_paths(error);
    } else {
      tls_.add_certificate_authority(asio::buffer(config_.ca_pem), error);
    }
    if (!error && !config_.client_certificate_pem.empty()) {
      tls_.use_certificate_chain(asio::buffer(config_.client_certificate_pem), error);
      if (!error) tls_.use_private_key(asio::buffer(config_.client_key_pem), asio::ssl::context::pem, error);
    }
    if (!error) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat("certificates for the Kubernetes API server: ", error.message()));
  }

  absl::StatusOr<Json> Get(const std::string& path) override { return Call(http::verb::get, path, "", ""); }
  absl::StatusOr<Json> Create(const std::string& path, const Json& object) override {
    return Call(http::verb::post, path, "application/json", object.dump());
  }
  absl::StatusOr<Json> MergePatch(const std::string& path, const Json& patch) override {
    return Call(http::verb::patch, path, "application/merge-patch+json", patch.dump());
  }
  absl::StatusOr<Json> Apply(const std::string& path, const Json& object) override {
    return Call(http::verb::patch, path + "?fieldManager=tesserad&force=true", "application/apply-patch+yaml",
                object.dump());
  }
  absl::Status Delete(const std::string& path, const std::string& uid, Grace grace) override {
    Json options = {{"kind", "DeleteOptions"}, {"apiVersion", "v1"}, {"propagationPolicy", "Background"}};
    if (!uid.empty()) options["preconditions"] = {{"uid", uid}};
    // Not in the query, which the server ignores where there is a body.
    if (grace == Grace::kNone) options["gracePeriodSeconds"] = 0;
    return Call(http::verb::delete_, path, "application/json", options.dump()).status();
  }

  absl::Status Watch(const std::string& path, const std::string& resource_version,
                     const std::function<bool(const Json&)>& event,
                     const std::function<bool()>& stop) override {
    const std::string target = absl::StrCat(path, path.find('?') == std::string::npos ? "?" : "&",
                                            "watch=1&allowWatchBookmarks=true&timeoutSeconds=", kWatchSeconds,
                                            "&resourceVersion=", QueryEscape(resource_version));
    absl::Status failed;
    const auto line = [&](const std::string& text) {
      const Json said = Json::parse(text, nullptr, /*allow_exceptions=*/false);
      if (!said.is_object() || !said.contains("object")) return true;
      if (said.value("type", "") != "ERROR") return event(said);
      failed = StatusOfAnswer(said["object"].value("code", 500), said["object"].dump());
      return false;
    };
    std::string text;
    const absl::Status ended = Follow(
        target,
        [&](std::string_view piece) {
          text.append(piece);
          size_t begin = 0;
          for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
            if (!line(text.substr(begin, end - begin))) return false;
          }
          text.erase(0, begin);
          return true;
        },
        stop);
    return failed.ok() ? ended : failed;
  }

  absl::Status Follow(const std::string& path, const std::function<bool(std::string_view)>& take,
                      const std::function<bool()>& stop) override {
    Throttle();
    Connection connection(config_, tls_);
    TESSERA_RETURN_IF_ERROR(connection.Open());
    TESSERA_ASSIGN_OR_RETURN(const auto request, Request(http::verb::get, path, "", ""));
    TESSERA_RETURN_IF_ERROR(connection.Send(request));
    return connection.ReceivePieces(take, stop);
  }

 private:
  absl::StatusOr<http::request<http::string_body>> Request(http::verb verb, const std::string& target,
                                                           const std::string& type, const std::string& body) {
    http::request<http::string_body> request(verb, target, 11);
    request.set(http::field::host, config_.host);
    request.set(http::field::user_agent, "tesserad");
    request.set(http::field::accept, "application/json");
    TESSERA_ASSIGN_OR_RETURN(const std::string token, CurrentToken(config_));
    if (!token.empty()) request.set(http::field::authorization, "Bearer " + token);
    if (!type.empty()) request.set(http::field::content_type, type);
    request.body() = body;
    request.prepare_payload();
    return request;
  }

  absl::StatusOr<Json> Call(http::verb verb, const std::string& path, const std::string& type,
                            const std::string& body) {
    absl::Status last;
    absl::Duration backoff = absl::Milliseconds(100);
    for (int attempt = 0; attempt < kTries; ++attempt, backoff *= 2) {
      Throttle();
      bool sent = false;
      absl::StatusOr<Answer> answer = Exchange(verb, path, type, body, sent);
      absl::Duration wait = Jitter(backoff);
      if (answer.ok()) {
        last = StatusOfAnswer(answer->status, answer->body);
        if (last.ok()) {
          Json object = Json::parse(answer->body, nullptr, /*allow_exceptions=*/false);
          if (object.is_discarded())
            return absl::UnavailableError("the Kubernetes API server's answer is no JSON");
          return object;
        }
        const bool asked = answer->status == 429 || answer->retry_after > absl::ZeroDuration();
        if (!asked && (verb != http::verb::get || answer->status < 500)) return last;
        wait = std::max(wait, answer->retry_after);
      } else {
        last = answer.status();
        // A write that was sent may have been done: its caller finds out.
        if (!absl::IsUnavailable(last) || (verb != http::verb::get && sent)) return last;
      }
      if (attempt + 1 < kTries) absl::SleepFor(wait);
    }
    return last;
  }

  absl::StatusOr<Answer> Exchange(http::verb verb, const std::string& path, const std::string& type,
                                  const std::string& body, bool& sent) {
    TESSERA_ASSIGN_OR_RETURN(const auto request, Request(verb, path, type, body));
    // A connection that was idle may have been closed by the server: writes get a new one.
    std::unique_ptr<Connection> connection = verb == http::verb::get ? Take() : nullptr;
    if (connection == nullptr) {
      connection = std::make_unique<Connection>(config_, tls_);
      TESSERA_RETURN_IF_ERROR(connection->Open());
    }
    sent = true;
    TESSERA_RETURN_IF_ERROR(connection->Send(request));
    absl::StatusOr<Answer> answer = connection->Receive();
    if (answer.ok() && connection->reusable()) {
      absl::MutexLock lock(&mutex_);
      if (idle_.size() < 4) idle_.push_back(std::move(connection));
    }
    return answer;
  }

  std::unique_ptr<Connection> Take() {
    absl::MutexLock lock(&mutex_);
    if (idle_.empty()) return nullptr;
    auto connection = std::move(idle_.back());
    idle_.pop_back();
    return connection;
  }

  void Throttle() {
    absl::Duration wait = absl::ZeroDuration();
    {
      absl::MutexLock lock(&mutex_);
      const absl::Time now = absl::Now();
      allowed_ = std::min(kBurst, allowed_ + kRate * absl::ToDoubleSeconds(now - counted_at_)) - 1;
      counted_at_ = now;
      if (allowed_ < 0) wait = absl::Seconds(-allowed_ / kRate);
    }
    if (wait > absl::ZeroDuration()) absl::SleepFor(wait);
  }

  absl::Duration Jitter(absl::Duration backoff) {
    absl::MutexLock lock(&mutex_);
    return backoff * std::uniform_real_distribution<double>(0.5, 1.5)(random_);
  }

  const KubeConfig config_;
  asio::ssl::context tls_{asio::ssl::context::tls_client};
  absl::Mutex mutex_;
  std::vector<std::unique_ptr<Connection>> idle_ ABSL_GUARDED_BY(mutex_);
  double allowed_ ABSL_GUARDED_BY(mutex_) = kBurst;
  absl::Time counted_at_ ABSL_GUARDED_BY(mutex_) = absl::Now();
  std::mt19937 random_ ABSL_GUARDED_BY(mutex_){std::random_device{}()};
};

}  // namespace

absl::StatusOr<std::unique_ptr<ApiClient>> MakeApiClient(const KubeConfig& config) {
  auto client = std::make_unique<HttpsApiClient>(config);
  TESSERA_RETURN_IF_ERROR(client->Init());
  return client;
}

}  // namespace tessera::scheduler
