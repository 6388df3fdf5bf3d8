#include "json/document.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json_writer.hpp"

namespace attngraph {
namespace {

constexpr size_t kMaxShownBytes = 40;  // of a key or string in a message

/// As a JSON string; a long text is cut between two characters.
std::string shown(std::string_view text) {
  size_t kept = std::min(text.size(), kMaxShownBytes);
  while (kept > 0 && kept < text.size() && (text[kept] & 0xc0) == 0x80) --kept;
  std::string out;
  append_json_string(out, text.substr(0, kept));
  if (kept < text.size()) out.insert(out.size() - 1, "...");
  return out;
}

bool is_word(std::string_view text) {
  return !text.empty() && text.size() <= kMaxShownBytes && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
}

void append_key(std::string& path, std::string_view key) {
  if (!is_word(key)) {
    path += '[' + shown(key) + ']';
    return;
  }
  if (!path.empty()) path += '.';
  path += key;
}

/// What the reader found wrong, without its code, position and excerpt: "invalid literal".
std::string_view reason_of(const nlohmann::json::exception& error) {
  constexpr int kNumberOverflow = 406;  // the library's number of this error
  if (error.id == kNumberOverflow) return "number overflow";
  std::string_view what = error.what();
  const size_t begin = what.find(" - ");
  if (begin == std::string_view::npos) return "unexpected end of input";  // 3.11.3 on, of an empty text
  what.remove_prefix(begin + 3);
  return what.substr(0, what.find(';'));
}

}  // namespace

/// Receives the parse events of nlohmann/json; false stops the parse.
class JsonDocument::Builder {
 public:
  Builder(JsonDocument& document, std::string_view input) : document_(document), input_(input) {}

  const Status& status() const { return status_; }

  bool null() { return add({}); }
  bool boolean(bool value) { return add({.kind = JsonKind::kBool, .integer = value}); }
  bool number_integer(int64_t value) { return add({.kind = JsonKind::kInteger, .integer = value}); }
  bool number_unsigned(uint64_t value) {
    if (value <= INT64_MAX) return number_integer(static_cast<int64_t>(value));
    return add({.kind = JsonKind::kUnsigned, .unsigned_value = value});
  }
  bool number_float(double value, const std::string&) {
    return add({.kind = JsonKind::kNumber, .number = value});
  }
  bool string(const std::string& text) { return add(text_entry(JsonKind::kString, text)); }
  bool binary(const nlohmann::json::binary_t&) { return false; }  // no part of JSON text
  bool key(const std::string& text) {
    document_.entries_.push_back(text_entry(JsonKind::kKey, text));
    return true;
  }
  bool start_object(size_t) { return open(JsonKind::kObject); }
  bool start_array(size_t) { return open(JsonKind::kArray); }
  bool end_object() { return keys_are_unique() && close(); }
  bool end_array() { return close(); }

  bool parse_error(size_t position, const std::string& last_read, const nlohmann::json::exception& error) {
    status_ = fail(Code::kInvalidGraph, document_.path(document_.entries_.size()), ": ", reason_of(error),
                   " at ", place(std::max<size_t>(position, 1)), ", last read ", shown(last_read),
                   "; must be JSON with numbers within double");
    return false;
  }

  /// The reader takes a NUL for the end of its input, whatever stands behind it.
  bool has_no_nul() {
    const size_t nul = input_.find('\0');
    if (nul == std::string_view::npos) return true;
    status_ = fail(Code::kInvalidGraph, "document: NUL at ", place(nul + 1), "; must be JSON text");
    return false;
  }

 private:
  /// Where character `position`, counted from 1, stands.
  std::string place(size_t position) const {
    const std::string_view before = input_.substr(0, position - 1);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const size_t column = position - (before.rfind('\n') + 1);  // npos + 1 is 0
    return text("line ", line, ", column ", column);
  }

  Entry text_entry(JsonKind kind, const std::string& text) {
    const size_t begin = document_.texts_.size();
    document_.texts_ += text;
    return {.kind = kind, .begin = begin, .size = text.size()};
  }

  bool add(const Entry& entry) {
    if (!open_.empty()) ++document_.entries_[open_.back()].size;
    document_.entries_.push_back(entry);
    return true;
  }

  bool open(JsonKind kind) {
    if (open_.size() == kMaxJsonDepth) {
      status_ = fail(Code::kInvalidGraph, document_.path(document_.entries_.size()), ": nested ",
                     kMaxJsonDepth + 1, " deep; must be at most ", kMaxJsonDepth);
      return false;
    }
    add({.kind = kind, .end = kOpen});
    open_.push_back(document_.entries_.size() - 1);
    return true;
  }

  bool close() {
    document_.entries_[open_.back()].end = document_.entries_.size();
    open_.pop_back();
    return true;
  }

  /// Of the innermost open object.
  bool keys_are_unique() {
    keys_.clear();
    const size_t end = document_.entries_.size();
    for (size_t key = open_.back() + 1; key < end; key = document_.end_of(key + 1))
      keys_.emplace_back(document_.text_of(key), key);
    std::sort(keys_.begin(), keys_.end());
    const auto twice = std::adjacent_find(keys_.begin(), keys_.end(),
                                          [](const auto& x, const auto& y) { return x.first == y.first; });
    if (twice == keys_.end()) return true;
    status_ = fail(Code::kInvalidGraph, document_.path(std::next(twice)->second), ": key given twice",
                   "; must be given once");
    return false;
  }

  JsonDocument& document_;
  std::string_view input_;
  std::vector<size_t> open_;  ///< containers being read, outermost first
  std::vector<std::pair<std::string_view, size_t>> keys_;
  Status status_;
};

Result<JsonDocument> JsonDocument::parse(std::string_view text) {
  JsonDocument document;
  Builder builder(document, text);
  if (!builder.has_no_nul() || !nlohmann::json::sax_parse(text, &builder)) return builder.status();
  return document;
}

std::string JsonDocument::path(size_t entry) const {
  std::string path;
  size_t container = 0;
  while (container < entry && is_container(container) && end_of(container) > entry) {
    const bool is_object = entries_[container].kind == JsonKind::kObject;
    const size_t key_entries = is_object ? 1 : 0;
    size_t child = container + 1;
    size_t index = 0;
    for (; child + key_entries < entry && end_of(child + key_entries) <= entry; ++index)
      child = end_of(child + key_entries);
    if (!is_object) path += '[' + std::to_string(index) + ']';
    if (is_object && child < entries_.size()) append_key(path, text_of(child));
    container = child + key_entries;
  }
  return path.empty() ? "document" : path;
}

double JsonValue::number() const {
  if (kind() == JsonKind::kInteger) return static_cast<double>(entry().integer);
  if (kind() == JsonKind::kUnsigned) return static_cast<double>(entry().unsigned_value);
  return entry().number;
}

std::optional<JsonValue> JsonValue::find(std::string_view key) const {
  if (kind() != JsonKind::kObject) return std::nullopt;
  for (const JsonValue member : *this)
    if (member.key() == key) return member;
  return std::nullopt;
}

JsonValue JsonValue::at(std::string_view key) const {
  const std::optional<JsonValue> member = find(key);
  assert(member);
  return *member;
}

JsonValue JsonValue::at(size_t index) const {
  assert(index < size());
  Iterator element = begin();
  for (size_t i = 0; i < index; ++i) ++element;
  return *element;
}

std::string JsonValue::describe() const {
  switch (kind()) {
    case JsonKind::kNull:
      return "null";
    case JsonKind::kBool:
      return boolean() ? "true" : "false";
    case JsonKind::kInteger:
      return std::to_string(entry().integer);
    case JsonKind::kUnsigned:
      return std::to_string(entry().unsigned_value);
    case JsonKind::kNumber: {
      std::string out;
      append_json_number(out, entry().number);
      return out;
    }
    case JsonKind::kString:
    case JsonKind::kKey:
      return shown(text());
    case JsonKind::kArray:
      return attngraph::text("an array of ", size());
    case JsonKind::kObject:
      return attngraph::text("an object of ", size());
  }
  return {};
}

JsonValue::Iterator JsonValue::begin() const {
  return {*document_, entry_ + 1, size_t{kind() == JsonKind::kObject}};
}
JsonValue::Iterator JsonValue::end() const {
  return {*document_, entry().end, size_t{kind() == JsonKind::kObject}};
}

}  // namespace attngraph
