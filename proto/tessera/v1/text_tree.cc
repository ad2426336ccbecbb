#include "proto/tessera/v1/text_tree.h"

#include <algorithm>
#include <sstream>
#include <unordered_map>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "nlohmann/json.hpp"
#include "proto/tessera/v1/job_codec.h"
#include "yaml-cpp/eventhandler.h"
#include "yaml-cpp/yaml.h"

namespace tessera::spec {
namespace {

// Length of the UTF-8 sequence at the head of `text`; 0 when it is not one.
size_t SequenceLength(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return lead == 0 ? 0 : 1;
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  if (lead == 0xE0 && byte(1) < 0xA0) return 0;  // overlong
  if (lead == 0xED && byte(1) > 0x9F) return 0;  // surrogate
  if (lead == 0xF0 && byte(1) < 0x90) return 0;  // overlong
  if (lead == 0xF4 && byte(1) > 0x8F) return 0;  // above U+10FFFF
  return length;
}

// Collects nested values from either parser; both report in document order.
class Builder {
 public:
  explicit Builder(std::vector<Violation>* violations) : violations_(violations) {}

  void Key(std::string key, int line) {
    const auto [first, is_new] = keys_.back().emplace(key, line);
    if (!is_new && violations_->size() < kMaxTextViolations) {
      const int other = first->second;
      violations_->push_back(
          {.path = Path(key),
           .message = "is given twice",
           .remedy = other > 0 ? absl::StrCat("keep one; the other is in line ", other) : "keep one",
           .line = line});
    }
    key_ = std::move(key);
    key_line_ = line;
  }
  void Scalar(Tree::Kind kind, std::string text, int line) {
    Tree tree;
    tree.kind = kind;
    tree.text = std::move(text);
    Place(std::move(tree), line);
  }
  // False when the text is too deep.
  bool Open(Tree::Kind kind, int line) {
    if (stack_.size() >= static_cast<size_t>(kMaxTextDepth)) return false;
    Tree tree;
    tree.kind = kind;
    Label(&tree, line);
    stack_.push_back(std::move(tree));
    keys_.emplace_back();
    return true;
  }
  void Close() {
    Tree tree = std::move(stack_.back());
    stack_.pop_back();
    keys_.pop_back();
    Put(std::move(tree));
  }
  Tree Take() { return std::move(root_); }
  bool InMap() const { return !stack_.empty() && stack_.back().kind == Tree::Kind::kMap; }

 private:
  std::string Path(const std::string& key) const {
    std::string path;
    for (const Tree& level : stack_) {
      if (!level.key.empty()) absl::StrAppend(&path, level.key, ".");
    }
    return path + key;
  }
  void Label(Tree* tree, int line) {
    tree->line = line;
    if (!InMap()) return;
    tree->key = std::move(key_);
    tree->line = key_line_;
  }
  void Place(Tree tree, int line) {
    Label(&tree, line);
    Put(std::move(tree));
  }
  void Put(Tree tree) {
    if (stack_.empty()) {
      root_ = std::move(tree);
    } else {
      stack_.back().items.push_back(std::move(tree));
    }
  }

  std::vector<Violation>* violations_;
  std::vector<Tree> stack_;
  std::vector<std::unordered_map<std::string, int>> keys_;  // of each open level, with their lines
  Tree root_;
  std::string key_;
  int key_line_ = 0;
};

struct BadText {
  int line;
  std::string message;
};

class YamlHandler : public YAML::EventHandler {
 public:
  explicit YamlHandler(Builder* builder) : builder_(builder) {}
  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override { Scalar(Tree::Kind::kNull, "", mark); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    throw BadText{mark.line + 1, "aliases (*name) are not accepted; write the value out"};
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t,
                const std::string& value) override {
    if (tag != "?" && tag != "!" && !tag.empty() && tag != "tag:yaml.org,2002:str") {
      throw BadText{mark.line + 1, "tags (" + tag + ") are not accepted; remove it"};
    }
    Scalar(tag == "?" || tag.empty() ? Tree::Kind::kPlain : Tree::Kind::kQuoted, value, mark);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    Open(Tree::Kind::kList, mark);
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {
    Open(Tree::Kind::kMap, mark);
  }
  void OnMapEnd() override { Close(); }

 private:
  void Scalar(Tree::Kind kind, const std::string& text, const YAML::Mark& mark) {
    if (builder_->InMap() && expect_key_.back()) {
      builder_->Key(text, mark.line + 1);
      expect_key_.back() = false;
      return;
    }
    builder_->Scalar(kind, text, mark.line + 1);
    if (builder_->InMap()) expect_key_.back() = true;
  }
  void Open(Tree::Kind kind, const YAML::Mark& mark) {
    if (builder_->InMap() && expect_key_.back()) {
      throw BadText{mark.line + 1, "a key must be a word, not a mapping or a list"};
    }
    if (!builder_->Open(kind, mark.line + 1)) throw BadText{mark.line + 1, "is nested too deeply"};
    expect_key_.push_back(true);
  }
  void Close() {
    builder_->Close();
    expect_key_.pop_back();
    if (builder_->InMap()) expect_key_.back() = true;
  }

  Builder* builder_;
  std::vector<char> expect_key_;  // of each open map, whether a key comes next
};

class JsonHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit JsonHandler(Builder* builder) : builder_(builder) {}
  bool null() override { return Scalar(Tree::Kind::kNull, ""); }
  bool boolean(bool value) override { return Scalar(Tree::Kind::kBool, value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override {
    return Scalar(Tree::Kind::kNumber, absl::StrCat(value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    return Scalar(Tree::Kind::kNumber, absl::StrCat(value));
  }
  bool number_float(number_float_t, const string_t& text) override {
    return Scalar(Tree::Kind::kNumber, text);
  }
  bool string(string_t& value) override { return Scalar(Tree::Kind::kQuoted, value); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return Open(Tree::Kind::kMap); }
  bool key(string_t& value) override {
    builder_->Key(value, 0);
    return true;
  }
  bool end_object() override { return Close(); }
  bool start_array(std::size_t) override { return Open(Tree::Kind::kList); }
  bool end_array() override { return Close(); }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception& error) override {
    position_ = position;
    message_ = error.what();
    return false;
  }
  size_t position() const { return position_; }
  const std::string& message() const { return message_; }

 private:
  bool Scalar(Tree::Kind kind, std::string text) {
    builder_->Scalar(kind, std::move(text), 0);
    return true;
  }
  bool Open(Tree::Kind kind) {
    if (builder_->Open(kind, 0)) return true;
    message_ = "is nested too deeply";
    return false;
  }
  bool Close() {
    builder_->Close();
    return true;
  }

  Builder* builder_;
  size_t position_ = 0;
  std::string message_;
};

int LineAt(std::string_view text, size_t position) {
  const auto end = text.begin() + std::min(position, text.size());
  return 1 + static_cast<int>(std::count(text.begin(), end, '\n'));
}

Tree ParseJson(std::string_view text, std::vector<Violation>* violations) {
  Builder builder(violations);
  JsonHandler handler(&builder);
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &handler)) {
    std::string_view reason = handler.message();
    if (const size_t colon = reason.rfind("; "); colon != reason.npos) reason.remove_prefix(colon + 2);
    violations->push_back({.message = absl::StrCat("is not valid JSON: ", std::string(reason)),
                           .line = LineAt(text, handler.position())});
  }
  return builder.Take();
}

Tree ParseYaml(std::string_view text, std::vector<Violation>* violations) {
  Builder builder(violations);
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    YamlHandler handler(&builder);
    if (parser && parser.HandleNextDocument(handler)) {
      std::vector<Violation> ignored;
      Builder second(&ignored);
      YamlHandler second_handler(&second);
      if (parser && parser.HandleNextDocument(second_handler) && second.Take().kind != Tree::Kind::kNull) {
        violations->push_back({.message = "holds more than one document",
                               .remedy = "write one job per file; remove what follows the second ---"});
      }
    }
  } catch (const BadText& bad) {
    violations->push_back({.message = bad.message, .line = bad.line});
  } catch (const YAML::Exception& error) {
    violations->push_back({.message = absl::StrCat("is not valid YAML: ", error.msg),
                           .line = error.mark.is_null() ? 0 : error.mark.line + 1});
  } catch (const std::exception& error) {
    violations->push_back({.message = absl::StrCat("is not valid YAML: ", error.what())});
  }
  return builder.Take();
}

}  // namespace

Tree* Tree::Find(std::string_view name) {
  for (Tree& item : items) {
    if (item.key == name) return &item;
  }
  return nullptr;
}

Tree ParseText(std::string_view text, std::vector<Violation>* violations) {
  if (text.size() > kMaxTextBytes) {
    violations->push_back({.value = absl::StrCat(text.size(), " bytes"),
                           .message = absl::StrCat("must have at most ", kMaxTextBytes, " bytes")});
    return {};
  }
  if (text.substr(0, 3) == "\xEF\xBB\xBF") text.remove_prefix(3);
  for (size_t i = 0; i < text.size();) {
    const size_t length = SequenceLength(text.substr(i));
    if (length == 0) {
      violations->push_back({.message = absl::StrCat("is not UTF-8 text: bad byte at offset ", i),
                             .remedy = "save the file as UTF-8",
                             .line = LineAt(text, i)});
      return {};
    }
    i += length;
  }
  const size_t first = text.find_first_not_of(" \t\r\n");
  const bool braced = first != text.npos && (text[first] == '{' || text[first] == '[');
  if (braced) {
    std::vector<Violation> json_violations;
    Tree tree = ParseJson(text, &json_violations);
    const bool is_json = std::none_of(json_violations.begin(), json_violations.end(),
                                      [](const Violation& v) { return v.line > 0; });
    std::vector<Violation> yaml_violations;
    if (!is_json) {  // YAML's own flow style looks like JSON
      Tree yaml = ParseYaml(text, &yaml_violations);
      if (yaml_violations.empty()) return yaml;
    }
    violations->insert(violations->end(), json_violations.begin(), json_violations.end());
    return tree;
  }
  const size_t before = violations->size();
  Tree tree = ParseYaml(text, violations);
  if (violations->size() == before && tree.kind == Tree::Kind::kNull) {
    violations->push_back({.message = "is empty", .remedy = "write a message as YAML or JSON"});
  }
  return tree;
}

std::string Display(const Tree& tree) {
  switch (tree.kind) {
    case Tree::Kind::kNull:
      return "nothing";
    case Tree::Kind::kMap:
      return "a mapping";
    case Tree::Kind::kList:
      return "a list";
    default:
      break;
  }
  constexpr size_t kShown = 60;
  std::string text = tree.text.substr(0, kShown);
  while (!text.empty() && (static_cast<unsigned char>(text.back()) & 0xC0) == 0x80 &&
         tree.text.size() > kShown) {
    text.pop_back();
  }
  if (tree.text.size() > kShown) text += "...";
  std::replace_if(
      text.begin(), text.end(), [](char c) { return absl::ascii_iscntrl(c); }, ' ');
  return tree.kind == Tree::Kind::kQuoted ? absl::StrCat("\"", text, "\"") : text;
}

}  // namespace tessera::spec
