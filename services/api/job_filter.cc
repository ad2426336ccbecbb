#include "services/api/job_filter.h"

#include <cmath>
#include <optional>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "proto/tessera/v1/field_names.h"
#include "proto/tessera/v1/quantity.h"
#include "proto/tessera/v1/violation.h"

namespace tessera::services {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr int kMaxDepth = 32;

absl::Status Invalid(std::string message, std::string remedy = "") {
  return spec::MakeInvalid({{.path = "filter", .message = std::move(message), .remedy = std::move(remedy)}});
}

double SecondsOf(const google::protobuf::Timestamp& time) {
  return static_cast<double>(time.seconds()) + time.nanos() * 1e-9;
}
double SecondsOf(const google::protobuf::Duration& time) {
  return static_cast<double>(time.seconds()) + time.nanos() * 1e-9;
}

bool IsMessage(const FieldDescriptor* field, const char* type) {
  return field->message_type() != nullptr && field->message_type()->full_name() == type;
}
bool IsTime(const FieldDescriptor* field) { return IsMessage(field, "google.protobuf.Timestamp"); }
bool IsDuration(const FieldDescriptor* field) { return IsMessage(field, "google.protobuf.Duration"); }

struct Token {
  enum class Kind { kWord, kQuoted, kOperator, kOpen, kClose, kEnd };
  Kind kind = Kind::kEnd;
  std::string text;
};

absl::StatusOr<std::vector<Token>> Split(std::string_view text) {
  std::vector<Token> tokens;
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (absl::ascii_isspace(c)) {
      ++i;
    } else if (c == '(' || c == ')') {
      tokens.push_back({c == '(' ? Token::Kind::kOpen : Token::Kind::kClose, std::string(1, c)});
      ++i;
    } else if (c == '"' || c == '\'') {
      std::string value;
      for (++i; i < text.size() && text[i] != c; ++i) {
        if (text[i] == '\\' && i + 1 < text.size()) ++i;
        value += text[i];
      }
      if (i >= text.size()) return Invalid("has a quote that is not closed");
      tokens.push_back({Token::Kind::kQuoted, value});
      ++i;
    } else if (std::string_view("=!<>:").find(c) != std::string_view::npos) {
      const bool two = i + 1 < text.size() && text[i + 1] == '=' && c != '=' && c != ':';
      tokens.push_back({Token::Kind::kOperator, std::string(text.substr(i, two ? 2 : 1))});
      i += two ? 2 : 1;
    } else {
      const size_t begin = i;
      while (i < text.size() && !absl::ascii_isspace(text[i]) &&
             std::string_view("()=!<>:\"'").find(text[i]) == std::string_view::npos) {
        ++i;
      }
      tokens.push_back({Token::Kind::kWord, std::string(text.substr(begin, i - begin))});
    }
  }
  tokens.push_back({});
  return tokens;
}

}  // namespace

struct JobFilter::Node {
  enum class Kind { kAnd, kOr, kNot, kCompare };
  Kind kind = Kind::kCompare;
  std::vector<std::shared_ptr<const Node>> children;
  std::vector<const FieldDescriptor*> path;
  std::string op;
  std::string text;   // of a string
  double number = 0;  // of everything else
};

namespace {

using Node = JobFilter::Node;
using NodePtr = std::shared_ptr<const Node>;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  absl::StatusOr<NodePtr> ParseAll() {
    TESSERA_ASSIGN_OR_RETURN(NodePtr root, Expression(0));
    if (Peek().kind != Token::Kind::kEnd)
      return Invalid(absl::StrCat("has an unexpected '", Peek().text, "'"));
    return root;
  }

 private:
  const Token& Peek() const { return tokens_[at_]; }
  Token Take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool IsWord(const char* word) const { return Peek().kind == Token::Kind::kWord && Peek().text == word; }

  static NodePtr Join(Node::Kind kind, std::vector<NodePtr> children) {
    if (children.size() == 1) return children[0];
    auto node = std::make_shared<Node>();
    node->kind = kind;
    node->children = std::move(children);
    return node;
  }

  absl::StatusOr<NodePtr> Expression(int depth) {
    if (depth > kMaxDepth) return Invalid("is nested too deeply");
    std::vector<NodePtr> all;
    while (true) {
      TESSERA_ASSIGN_OR_RETURN(NodePtr factor, Factor(depth));
      all.push_back(std::move(factor));
      if (IsWord("AND")) {
        Take();
      } else if (Peek().kind == Token::Kind::kEnd || Peek().kind == Token::Kind::kClose) {
        return Join(Node::Kind::kAnd, std::move(all));
      }
    }
  }

  absl::StatusOr<NodePtr> Factor(int depth) {
    std::vector<NodePtr> any;
    while (true) {
      TESSERA_ASSIGN_OR_RETURN(NodePtr term, Term(depth));
      any.push_back(std::move(term));
      if (!IsWord("OR")) return Join(Node::Kind::kOr, std::move(any));
      Take();
    }
  }

  absl::StatusOr<NodePtr> Term(int depth) {
    bool negated = false;
    if (IsWord("NOT")) {
      negated = true;
      Take();
    } else if (Peek().kind == Token::Kind::kWord && absl::StartsWith(Peek().text, "-")) {
      negated = true;
      tokens_[at_].text.erase(0, 1);
      if (Peek().text.empty()) Take();
    }
    NodePtr inner;
    if (Peek().kind == Token::Kind::kOpen) {
      Take();
      TESSERA_ASSIGN_OR_RETURN(inner, Expression(depth + 1));
      if (Take().kind != Token::Kind::kClose) return Invalid("has a '(' that is not closed");
    } else {
      TESSERA_ASSIGN_OR_RETURN(inner, Comparison());
    }
    if (!negated) return inner;
    auto node = std::make_shared<Node>();
    node->kind = Node::Kind::kNot;
    node->children.push_back(std::move(inner));
    return NodePtr(std::move(node));
  }

  absl::StatusOr<NodePtr> Comparison() {
    const Token field = Take();
    if (field.kind != Token::Kind::kWord) {
      return Invalid(field.kind == Token::Kind::kEnd
                         ? "ends where a field is expected"
                         : absl::StrCat("has '", field.text, "' where a field is expected"),
                     "write it like status.state = running");
    }
    auto node = std::make_shared<Node>();
    TESSERA_RETURN_IF_ERROR(FindPath(field.text, &node->path));
    const Token op = Take();
    if (op.kind != Token::Kind::kOperator || op.text == "!") {
      return Invalid(absl::StrCat("needs an operator after ", field.text), "use =, !=, <, <=, >, >= or :");
    }
    node->op = op.text;
    const Token value = Take();
    if (value.kind != Token::Kind::kWord && value.kind != Token::Kind::kQuoted) {
      return Invalid(absl::StrCat("needs a value after ", field.text, " ", op.text));
    }
    TESSERA_RETURN_IF_ERROR(ReadValue(field.text, value, node.get()));
    return NodePtr(std::move(node));
  }

  static absl::Status FindPath(const std::string& text, std::vector<const FieldDescriptor*>* path) {
    const Descriptor* type = v1::TrainingJob::descriptor();
    for (const std::string& name : std::vector<std::string>(absl::StrSplit(text, '.'))) {
      const FieldDescriptor* found = nullptr;
      for (int i = 0; type != nullptr && i < type->field_count(); ++i) {
        if (type->field(i)->name() == name || type->field(i)->json_name() == name) found = type->field(i);
      }
      if (found == nullptr || (!path->empty() && (IsTime(path->back()) || IsDuration(path->back())))) {
        return Invalid(absl::StrCat("names ", text, ", which is no field of a job"),
                       "use paths like name, spec.priority or status.state");
      }
      if (found->is_repeated())
        return Invalid(absl::StrCat("names ", text, ": lists and maps can't be compared"));
      path->push_back(found);
      type = found->message_type();
    }
    return absl::OkStatus();
  }

  static absl::Status ReadValue(const std::string& name, const Token& value, Node* node) {
    const FieldDescriptor* field = node->path.back();
    const std::string& text = value.text;
    if (node->op == ":" && text == "*" && value.kind == Token::Kind::kWord) {
      node->op = "set";
      return absl::OkStatus();
    }
    const bool equality = node->op == "=" || node->op == "!=";
    const auto wrong = [&](const char* what) {
      return Invalid(absl::StrCat("compares ", name, " with '", text.substr(0, 60), "', which is no ", what));
    };
    if (node->op == ":" && field->cpp_type() != FieldDescriptor::CPPTYPE_STRING) node->op = "=";
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_STRING:
        node->text = text;
        return absl::OkStatus();
      case FieldDescriptor::CPPTYPE_BOOL:
        if (text != "true" && text != "false") return wrong("boolean");
        if (!equality && node->op != "=") return Invalid(absl::StrCat("orders ", name, ", a boolean"));
        node->number = text == "true" ? 1 : 0;
        return absl::OkStatus();
      case FieldDescriptor::CPPTYPE_ENUM: {
        const auto* known = spec::FindEnumValue(field->enum_type(), text);
        if (known == nullptr) return wrong("value of it");
        if (!equality && node->op != "=")
          return Invalid(absl::StrCat("orders ", name, ", which has no order"));
        node->number = known->number();
        return absl::OkStatus();
      }
      case FieldDescriptor::CPPTYPE_MESSAGE:
        if (IsTime(field)) {
          const auto time = spec::ParseTimestamp(text);
          if (!time.has_value()) return wrong("time like 2026-05-01T12:00:00Z");
          node->number = SecondsOf(*time);
        } else if (IsDuration(field)) {
          const auto duration = spec::ParseDuration(text);
          if (!duration.has_value()) return wrong("duration like 30s or 5m");
          node->number = SecondsOf(*duration);
        } else {
          return Invalid(absl::StrCat("compares ", name, ", a whole message"),
                         absl::StrCat("name a field of it, or write ", name, ":*"));
        }
        return absl::OkStatus();
      default:
        if (absl::SimpleAtod(text, &node->number) && std::isfinite(node->number)) return absl::OkStatus();
        if (const auto bytes = spec::ParseBytes(text);
            bytes.has_value() && absl::EndsWith(field->name(), "_bytes")) {
          node->number = static_cast<double>(*bytes);
          return absl::OkStatus();
        }
        return wrong("number");
    }
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
};

bool EqualText(const std::string& pattern, const std::string& value) {
  absl::string_view middle = pattern;
  const bool front = absl::ConsumePrefix(&middle, "*");
  const bool back = absl::ConsumeSuffix(&middle, "*");
  if (front && back) return absl::StrContains(value, middle);
  if (front) return absl::EndsWith(value, middle);
  if (back) return absl::StartsWith(value, middle);
  return value == pattern;
}

template <typename T>
bool Ordered(const std::string& op, const T& a, const T& b) {
  if (op == "<") return a < b;
  if (op == "<=") return a <= b;
  if (op == ">") return a > b;
  return a >= b;
}

double NumberOf(const Message& message, const FieldDescriptor* field) {
  const auto* r = message.GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return r->GetInt32(message, field);
    case FieldDescriptor::CPPTYPE_INT64:
      return static_cast<double>(r->GetInt64(message, field));
    case FieldDescriptor::CPPTYPE_UINT32:
      return r->GetUInt32(message, field);
    case FieldDescriptor::CPPTYPE_UINT64:
      return static_cast<double>(r->GetUInt64(message, field));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return r->GetDouble(message, field);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return r->GetFloat(message, field);
    case FieldDescriptor::CPPTYPE_BOOL:
      return r->GetBool(message, field) ? 1 : 0;
    case FieldDescriptor::CPPTYPE_ENUM:
      return r->GetEnumValue(message, field);
    default:
      break;
  }
  const Message& nested = r->GetMessage(message, field);
  if (IsTime(field)) return SecondsOf(static_cast<const google::protobuf::Timestamp&>(nested));
  return SecondsOf(static_cast<const google::protobuf::Duration&>(nested));
}

bool Compare(const Node& node, const Message& job) {
  const Message* message = &job;
  for (size_t i = 0; i + 1 < node.path.size(); ++i) {
    message = &message->GetReflection()->GetMessage(*message, node.path[i]);
  }
  const FieldDescriptor* field = node.path.back();
  const bool set = message->GetReflection()->HasField(*message, field);
  if (node.op == "set") return set;
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
    const std::string value = message->GetReflection()->GetString(*message, field);
    if (node.op == ":") return absl::StrContains(value, node.text);
    if (node.op == "=" || node.op == "!=") return EqualText(node.text, value) == (node.op == "=");
    return Ordered(node.op, value, node.text);
  }
  // A time or duration that is not there is neither before nor after another.
  if (field->message_type() != nullptr && !set) return node.op == "!=";
  const double value = NumberOf(*message, field);
  if (node.op == "=" || node.op == "!=") return (value == node.number) == (node.op == "=");
  return Ordered(node.op, value, node.number);
}

bool Holds(const Node& node, const Message& job) {
  switch (node.kind) {
    case Node::Kind::kAnd:
      for (const NodePtr& child : node.children) {
        if (!Holds(*child, job)) return false;
      }
      return true;
    case Node::Kind::kOr:
      for (const NodePtr& child : node.children) {
        if (Holds(*child, job)) return true;
      }
      return false;
    case Node::Kind::kNot:
      return !Holds(*node.children[0], job);
    case Node::Kind::kCompare:
      break;
  }
  return Compare(node, job);
}

}  // namespace

absl::StatusOr<JobFilter> JobFilter::Parse(std::string_view text) {
  if (text.size() > kMaxLength) return Invalid(absl::StrCat("must have at most ", kMaxLength, " characters"));
  TESSERA_ASSIGN_OR_RETURN(std::vector<Token> tokens, Split(text));
  if (tokens.size() == 1) return JobFilter(nullptr);
  TESSERA_ASSIGN_OR_RETURN(NodePtr root, Parser(std::move(tokens)).ParseAll());
  return JobFilter(std::move(root));
}

bool JobFilter::Matches(const v1::TrainingJob& job) const { return root_ == nullptr || Holds(*root_, job); }

}  // namespace tessera::services
