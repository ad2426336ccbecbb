// A blocking HTTP/1.1 client over a plain socket: one connection, raw text in and out.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "boost/asio/connect.hpp"
#include "boost/asio/ip/tcp.hpp"
#include "boost/asio/write.hpp"
#include "tests/services/doors.h"

namespace tessera::services {

struct HttpAnswer {
  int status = 0;
  std::map<std::string, std::string> headers;
  std::string body;
};

class HttpClient {
 public:
  explicit HttpClient(int port) : socket_(io_) {
    socket_.connect({boost::asio::ip::make_address("127.0.0.1"), static_cast<unsigned short>(port)});
  }
  void Send(const std::string& text) {
    boost::system::error_code ignored;  // a server may answer and close before all is sent
    boost::asio::write(socket_, boost::asio::buffer(text), ignored);
  }
  // What came until `end` (included); what came in all when the connection ended first.
  std::string ReadUntil(const std::string& end) {
    while (true) {
      if (const size_t at = received_.find(end); at != std::string::npos) {
        const std::string text = received_.substr(0, at + end.size());
        received_.erase(0, at + end.size());
        return text;
      }
      if (!More()) return std::exchange(received_, "");
    }
  }
  HttpAnswer Read() {
    HttpAnswer answer;
    const std::string head = ReadUntil("\r\n\r\n");
    if (head.size() < 12) return answer;
    answer.status = std::stoi(head.substr(9, 3));
    size_t line = head.find("\r\n") + 2;
    while (line < head.size() - 2) {
      const size_t end = head.find("\r\n", line);
      const size_t colon = head.find(": ", line);
      answer.headers[absl::AsciiStrToLower(head.substr(line, colon - line))] =
          head.substr(colon + 2, end - colon - 2);
      line = end + 2;
    }
    if (const auto length = answer.headers.find("content-length"); length != answer.headers.end()) {
      const size_t size = std::stoul(length->second);
      while (received_.size() < size && More()) {
      }
      answer.body = received_.substr(0, size);
      received_.erase(0, size);
    }
    return answer;
  }
  HttpAnswer Call(const std::string& method, const std::string& target, const std::string& body = "",
                  const std::string& headers = "Content-Type: application/json\r\n",
                  const std::string& token = kClientToken) {
    Send(method + " " + target + " HTTP/1.1\r\nHost: x\r\n" +
         (token.empty() ? "" : "Authorization: Bearer " + token + "\r\n") + headers +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
    return Read();
  }
  // True when the server closed its side and nothing is left to read.
  bool AtEnd() { return received_.empty() && !More(); }

 private:
  bool More() {
    char buffer[4096];
    boost::system::error_code error;
    const size_t length = socket_.read_some(boost::asio::buffer(buffer), error);
    received_.append(buffer, length);
    return !error;
  }

  boost::asio::io_context io_;
  boost::asio::ip::tcp::socket socket_;
  std::string received_;
};

inline HttpAnswer Http(const Doors& doors, const std::string& method, const std::string& target,
                       const std::string& body = "",
                       const std::string& headers = "Content-Type: application/json\r\n",
                       const std::string& token = kClientToken) {
  return HttpClient(doors.rest->port()).Call(method, target, body, headers, token);
}

}  // namespace tessera::services
