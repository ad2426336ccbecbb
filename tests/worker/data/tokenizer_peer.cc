// Reads texts as JSON strings, a line each, and prints what a tokenizer makes of them, for tests/peers.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "worker/data/tokenizer.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const auto tokenizer = tessera::worker::OpenTokenizer(argv[1]);
  if (!tokenizer.ok()) {
    std::cerr << tokenizer.status() << '\n';
    return 1;
  }
  for (std::string line; std::getline(std::cin, line);) {
    const std::string text = nlohmann::json::parse(line);
    const auto ids = (*tokenizer)->Encode(text);
    std::cout << nlohmann::json{{"ids", ids}, {"whole", (*tokenizer)->EncodeWhole(text)}}.dump() << '\n';
  }
}
