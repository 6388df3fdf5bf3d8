#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/message.hpp"

namespace attngraph {

class JsonValue;

enum class JsonKind : uint8_t {
  kNull,
  kBool,
  kInteger,   ///< an integer of int64
  kUnsigned,  ///< an integer beyond int64 that is within uint64
  kNumber,    ///< any other number; always finite
  kString,
  kArray,
  kObject,
  kKey,  ///< of the member whose value comes next; never the kind of a JsonValue
};

/// Deepest nesting that is read; a case file's graph needs 8.
inline constexpr size_t kMaxJsonDepth = 64;

/// A JSON text as it was read: values in file order in one list, texts in one string, so that memory
/// is bounded by a small multiple of the text's size and nothing recurses.
class JsonDocument {
 public:
  /// Errors: kInvalidGraph with the JSON path, and line and column where it is no JSON: malformed
  ///         text or UTF-8, a number beyond double, a key given twice in one object, nesting deeper
  ///         than kMaxJsonDepth.
  static Result<JsonDocument> parse(std::string_view text);

  /// Valid while the document stays where it is.
  JsonValue root() const;

  /// Where an entry lies: "tensors[1].dims[0]"; "document" for the root. The last entry's successor
  /// stands for what would be read next.
  std::string path(size_t entry) const;

 private:
  friend class JsonValue;
  class Builder;

  struct Entry {
    JsonKind kind = JsonKind::kNull;
    union {
      int64_t integer = 0;      ///< kBool, kInteger
      uint64_t unsigned_value;  ///< kUnsigned
      double number;            ///< kNumber
      size_t begin;             ///< kString, kKey: in texts_
      size_t end;               ///< kArray, kObject: one past its last entry; kOpen while it is read
    };
    size_t size = 0;  ///< bytes of a text, elements or members of a container
  };
  static constexpr size_t kOpen = SIZE_MAX;

  bool is_container(size_t entry) const {
    return entries_[entry].kind == JsonKind::kArray || entries_[entry].kind == JsonKind::kObject;
  }
  size_t end_of(size_t entry) const { return is_container(entry) ? entries_[entry].end : entry + 1; }
  std::string_view text_of(size_t entry) const {
    return std::string_view(texts_).substr(entries_[entry].begin, entries_[entry].size);
  }

  std::vector<Entry> entries_;
  std::string texts_;
};

/// One value of a document; cheap to copy.
class JsonValue {
 public:
  JsonValue(const JsonDocument& document, size_t entry) : document_(&document), entry_(entry) {}

  JsonKind kind() const { return entry().kind; }
  bool boolean() const { return entry().integer != 0; }
  int64_t integer() const { return entry().integer; }
  /// Any of the three number kinds, rounded to double.
  double number() const;
  std::string_view text() const { return document_->text_of(entry_); }
  /// Elements of an array, members of an object.
  size_t size() const { return entry().size; }
  /// The key of an object's member.
  std::string_view key() const { return document_->text_of(entry_ - 1); }

  /// The member of that key, if this is an object that has it.
  std::optional<JsonValue> find(std::string_view key) const;
  /// The member of a key that is there, and an element within the array.
  JsonValue at(std::string_view key) const;
  JsonValue at(size_t index) const;

  /// The value for messages, cut when it is long: `"many"`, `-3`, `an array of 4`.
  std::string describe() const;
  std::string path() const { return document_->path(entry_); }

  /// The failure `<path>: <value>; <what must be>`.
  template <class... Parts>
  Status refuse(const Parts&... must) const {
    return fail(Code::kInvalidGraph, path(), ": ", describe(), "; ", must...);
  }

  class Iterator;
  /// Over the elements of an array or the members' values of an object.
  Iterator begin() const;
  Iterator end() const;

 private:
  const JsonDocument::Entry& entry() const { return document_->entries_[entry_]; }

  const JsonDocument* document_;
  size_t entry_;
};

class JsonValue::Iterator {
 public:
  JsonValue operator*() const { return {*document_, entry_ + key_entries_}; }
  Iterator& operator++() {
    entry_ = document_->end_of(entry_ + key_entries_);
    return *this;
  }
  friend bool operator==(const Iterator& x, const Iterator& y) { return x.entry_ == y.entry_; }

 private:
  friend class JsonValue;
  Iterator(const JsonDocument& document, size_t entry, size_t key_entries)
      : document_(&document), entry_(entry), key_entries_(key_entries) {}

  const JsonDocument* document_;
  size_t entry_;
  size_t key_entries_;  ///< entries before a value: its key in an object, none in an array
};

inline JsonValue JsonDocument::root() const { return {*this, 0}; }

}  // namespace attngraph
