#include "base/json_writer.hpp"

#include <cmath>

#include "base/message.hpp"

namespace attngraph {
namespace {

/// Bytes of the well-formed UTF-8 sequence at the front of `text`, which is not empty; 0 when there
/// is none.
///
/// Source: The Unicode Standard 15.0, table 3-7.
size_t utf8_sequence(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead < 0xc2 || lead > 0xf4) return 0;
  const size_t size = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  if (text.size() < size) return 0;
  const unsigned char low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  const unsigned char high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  if (byte(1) < low || byte(1) > high) return 0;
  for (size_t i = 2; i < size; ++i)
    if (byte(i) < 0x80 || byte(i) > 0xbf) return 0;
  return size;
}

bool is_plain(char c) { return c >= 0x20 && c < 0x7f && c != '"' && c != '\\'; }

void append_escaped(std::string& out, char c) {
  constexpr std::string_view kHex = "0123456789abcdef";
  const auto byte = static_cast<unsigned char>(c);
  if (c == '"' || c == '\\') {
    out += {'\\', c};
  } else if (byte < 0x20) {
    out += "\\u00";
    out += {kHex[byte / 16], kHex[byte % 16]};
  } else {
    out += c;
  }
}

}  // namespace

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  while (!text.empty()) {
    size_t plain = 0;
    while (plain < text.size() && is_plain(text[plain])) ++plain;
    out += text.substr(0, plain);
    text.remove_prefix(plain);
    if (text.empty()) break;
    const size_t size = utf8_sequence(text);
    if (size == 0) out += "\\ufffd";
    if (size == 1) append_escaped(out, text[0]);
    if (size > 1) out += text.substr(0, size);
    text.remove_prefix(size == 0 ? 1 : size);
  }
  out += '"';
}

void append_json_number(std::string& out, double value) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  const size_t begin = out.size();
  out += shortest(value);
  if (out.find_first_of(".e", begin) == std::string::npos) out += ".0";
}

void JsonWriter::close() {
  const Level level = levels_.back();
  levels_.pop_back();
  if (level.style == Style::kLines && !level.is_empty) break_line();
  out_ += level.closing;
}

void JsonWriter::key(std::string_view name) {
  begin_element();
  append_json_string(out_, name);
  out_ += ": ";
  after_key_ = true;
}

void JsonWriter::value(std::string_view text) {
  begin_value();
  append_json_string(out_, text);
}

void JsonWriter::value(double number) {
  begin_value();
  append_json_number(out_, number);
}

void JsonWriter::value(int64_t number) {
  begin_value();
  out_ += shortest(number);
}

void JsonWriter::value(bool flag) {
  begin_value();
  out_ += flag ? "true" : "false";
}

void JsonWriter::open(char opening, char closing, Style style) {
  begin_value();
  out_ += opening;
  levels_.push_back({closing, style});
}

void JsonWriter::begin_element() {
  if (levels_.empty()) return;
  Level& level = levels_.back();
  if (!level.is_empty) out_ += level.style == Style::kLines ? "," : ", ";
  if (level.style == Style::kLines) break_line();
  level.is_empty = false;
}

void JsonWriter::begin_value() {
  if (!after_key_) begin_element();
  after_key_ = false;
}

void JsonWriter::break_line() {
  out_ += '\n';
  out_.append(2 * levels_.size(), ' ');
}

}  // namespace attngraph
