#include "worker/data/sentence_piece.h"

#include <dlfcn.h>

namespace tessera::worker {
namespace {

// DEEPBIND, a symbol scope of its own, is what the sanitizers' runtimes refuse.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TESSERA_SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(TESSERA_SANITIZED)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

using LoadFunction = SentencePiece* (*)(const std::string&, std::string*);
using LearnFunction = void (*)(const std::string&, const std::function<bool(std::string*)>&, std::string*,
                               std::string*);

struct Plugin {
  LoadFunction load = nullptr;
  LearnFunction learn = nullptr;
  std::string error;
};

const Plugin& GetPlugin() {
  static const Plugin& plugin = *[] {
    auto* loaded = new Plugin;
    if (kSanitized) {
      loaded->error = "bpe tokenizers are not available in a build with sanitizers";
      return loaded;
    }
    void* library = dlopen("libtessera_sentencepiece.so", RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    if (library != nullptr) {
      loaded->load = reinterpret_cast<LoadFunction>(dlsym(library, "TesseraLoadSentencePiece"));
      loaded->learn = reinterpret_cast<LearnFunction>(dlsym(library, "TesseraLearnSentencePiece"));
    }
    if (loaded->load == nullptr || loaded->learn == nullptr) {
      const char* reason = dlerror();
      loaded->error =
          std::string("the bpe tokenizer's plug-in can't be loaded: ") + (reason ? reason : "unknown");
      loaded->load = nullptr;
    }
    return loaded;
  }();
  return plugin;
}

}  // namespace

std::unique_ptr<SentencePiece> LoadSentencePiece(const std::string& model, std::string* error) {
  const Plugin& plugin = GetPlugin();
  if (plugin.load == nullptr) {
    *error = plugin.error;
    return nullptr;
  }
  return std::unique_ptr<SentencePiece>(plugin.load(model, error));
}

std::string LearnSentencePiece(const std::string& arguments,
                               const std::function<bool(std::string*)>& next_line, std::string* error) {
  const Plugin& plugin = GetPlugin();
  std::string model;
  if (plugin.load == nullptr) {
    *error = plugin.error;
  } else {
    plugin.learn(arguments, next_line, &model, error);
  }
  return error->empty() ? model : std::string();
}

}  // namespace tessera::worker
