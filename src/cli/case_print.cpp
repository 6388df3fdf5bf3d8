#include <cmath>

#include "base/json_writer.hpp"
#include "cli/case.hpp"
#include "json/graph_writer.hpp"

namespace attngraph::cli {
namespace {

using Style = JsonWriter::Style;

void write_real(JsonWriter& writer, double value) {
  if (std::isnan(value)) return writer.value("nan");
  if (std::isinf(value)) return writer.value(value > 0 ? "inf" : "-inf");
  writer.value(value);
}

void write(JsonWriter& writer, const Number& number) {
  if (const int64_t* integer = std::get_if<int64_t>(&number.value)) return writer.value(*integer);
  write_real(writer, number.real());
}

void write(JsonWriter& writer, const Wanted& wanted) {
  if (wanted.kind == Wanted::Kind::kAny) return writer.value("any");
  if (wanted.kind == Wanted::Kind::kUntouched) return writer.value("untouched");
  write_real(writer, wanted.value);
}

template <class T>
void write_list(JsonWriter& writer, const std::vector<T>& list) {
  writer.key("values"), writer.open_array();
  for (const T& element : list) write(writer, element);
  writer.close();
}

/// The members of a source's or an expectation's object.
struct MemberWriter {
  JsonWriter& writer;

  void operator()(const Values& source) const { write_list(writer, source.list); }
  void operator()(const Repeated& source) const {
    writer.key("fill"), write(writer, source.value);
    writer.key("count"), writer.value(source.count);
  }
  void operator()(const Random& source) const {
    writer.key("random"), writer.open_object();
    writer.key("seed"), writer.value(static_cast<int64_t>(source.seed));
    writer.close();
    writer.key("count"), writer.value(source.count);
  }
  void operator()(const View& source) const {
    writer.key("view_of"), writer.value(source.of);
    writer.key("offset"), writer.value(source.offset);
  }
  void operator()(const NullPointer&) const { writer.key("null"), writer.value(true); }
  void operator()(const WantedList& wanted) const { write_list(writer, wanted.list); }
  void operator()(const WantedEverywhere& wanted) const { writer.key("fill"), write(writer, wanted.value); }
  void operator()(const AsReference&) const {}
  void operator()(const SameAs& same) const {
    writer.key("same_as"), writer.open_object();
    writer.key("step"), writer.value(same.step);
    writer.key("uid"), writer.value(same.uid);
    writer.close();
  }
};

template <class T>
void write_by_uid(JsonWriter& writer, const char* key, const std::map<Uid, T>& entries) {
  writer.key(key), writer.open_object(Style::kLines);
  for (const auto& [uid, entry] : entries) {
    writer.key(std::to_string(uid));
    if constexpr (std::is_same_v<T, Expectation>) {
      if (std::holds_alternative<AsReference>(entry)) {
        writer.value("reference");
        continue;
      }
    }
    writer.open_object();
    std::visit(MemberWriter{writer}, entry);
    writer.close();
  }
  writer.close();
}

void write(JsonWriter& writer, const ExpectedError& error) {
  writer.key("expect_error"), writer.open_object();
  writer.key("stage"), writer.value(name_of(error.stage));
  writer.key("code"), writer.value(name_of(error.code));
  writer.key("words"), writer.open_array();
  for (const std::string& word : error.words) writer.value(word);
  writer.close();
  writer.close();
}

void write(JsonWriter& writer, const Step& step) {
  writer.open_object(Style::kLines);
  writer.key("graph"), attngraph::write(writer, step.text.graph);
  if (step.bind) write_by_uid(writer, "bind", *step.bind);
  if (!step.expect.empty()) write_by_uid(writer, "expect", step.expect);
  if (step.tolerance) {
    writer.key("tolerance"), writer.open_object();
    writer.key("abs"), writer.value(step.tolerance->abs);
    writer.key("rel"), writer.value(step.tolerance->rel);
    writer.close();
  }
  if (step.expect_error) write(writer, *step.expect_error);
  if (step.workspace_bytes_at_most)
    writer.key("workspace_bytes_at_most"), writer.value(*step.workspace_bytes_at_most);
  if (step.workspace.short_by_bytes != 0 || step.workspace.misaligned_by_bytes != 0) {
    writer.key("workspace"), writer.open_object();
    writer.key("short_by_bytes"), writer.value(step.workspace.short_by_bytes);
    writer.key("misaligned_by_bytes"), writer.value(step.workspace.misaligned_by_bytes);
    writer.close();
  }
  if (step.validate_bindings) writer.key("validate_bindings"), writer.value(true);
  writer.close();
}

}  // namespace

std::string print_case(const Case& described) {
  JsonWriter writer;
  writer.open_object(Style::kLines);
  writer.key("format"), writer.value(kCaseFormat);
  writer.key("version"), writer.value(kCaseVersion);
  writer.key("name"), writer.value(described.name);
  writer.key("why"), writer.value(described.why);
  writer.key("steps"), writer.open_array(Style::kLines);
  for (const Step& step : described.steps) write(writer, step);
  writer.close();
  writer.close();
  return std::move(writer).take();
}

}  // namespace attngraph::cli
