#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace attngraph {

/// Appends `text` as a JSON string, quotes included. A byte that is not part of well-formed UTF-8
/// becomes U+FFFD, so the result is valid JSON whatever the bytes.
void append_json_string(std::string& out, std::string_view text);

/// Appends the shortest number that reads back as `value`; null when it is not finite, since JSON
/// has no such number. A whole number keeps ".0", so that it reads back as no integer.
void append_json_number(std::string& out, double value);

/// Writes one JSON value piece by piece; commas, line breaks and escapes are its concern.
class JsonWriter {
 public:
  /// kLine: the whole container on one line; kLines: each of its elements on a line of its own.
  enum class Style : uint8_t { kLine, kLines };

  void open_object(Style style = Style::kLine) { open('{', '}', style); }
  void open_array(Style style = Style::kLine) { open('[', ']', style); }
  /// Closes the innermost container.
  void close();
  /// The key of the next value, in an object.
  void key(std::string_view name);

  void value(std::string_view text);
  void value(const char* text) { value(std::string_view(text)); }
  void value(double number);
  void value(int64_t number);
  void value(bool flag);

  /// The text written, once every container is closed.
  std::string take() && { return std::move(out_); }

 private:
  struct Level {
    char closing;
    Style style;
    bool is_empty = true;
  };

  void open(char opening, char closing, Style style);
  void begin_element();
  void begin_value();
  void break_line();

  std::string out_;
  std::vector<Level> levels_;
  bool after_key_ = false;
};

}  // namespace attngraph
