#include <cmath>
#include <limits>
#include <tuple>
#include <type_traits>

#include "cli/arguments.hpp"
#include "cli/case.hpp"
#include "json/graph_reader.hpp"

namespace attngraph::cli {
// The readers are static rather than in an unnamed namespace, where read_object() could not find
// them by their arguments.

static constexpr auto kRequired = Presence::kRequired;

/// The number that `text` stands for where JSON has none.
static std::optional<double> named_number(JsonValue value) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (value.kind() != JsonKind::kString) return std::nullopt;
  if (value.text() == "nan") return std::nan("");
  if (value.text() == "inf") return kInfinity;
  if (value.text() == "-inf") return -kInfinity;
  return std::nullopt;
}

static Status read(JsonValue value, Number& out) {
  if (const auto named = named_number(value)) {
    out.value = *named;
    return {};
  }
  if (value.kind() == JsonKind::kInteger) {
    out.value = value.integer();
    return {};
  }
  if (value.kind() != JsonKind::kNumber)
    return value.refuse("must be a number within int64 or double, \"nan\", \"inf\" or \"-inf\"");
  out.value = value.number();
  return {};
}

static Status read(JsonValue value, Wanted& out) {
  const auto says = [&](const char* word) {
    return value.kind() == JsonKind::kString && value.text() == word;
  };
  if (says("any") || says("untouched")) {
    out.kind = says("any") ? Wanted::Kind::kAny : Wanted::Kind::kUntouched;
    return {};
  }
  Number number;
  if (!read(value, number).ok())
    return value.refuse("must be a number, \"nan\", \"inf\", \"-inf\", \"any\" or \"untouched\"");
  out = {Wanted::Kind::kNumber, number.real()};
  return {};
}

/// An int64 that is not negative.
struct Count {
  int64_t& value;
};
static Status read(JsonValue value, Count& out) {
  ATTNGRAPH_RETURN_IF_ERROR(attngraph::read(value, out.value));
  return out.value >= 0 ? Status() : value.refuse("must be at least 0");
}

static Status read_values(JsonValue value, Source& out) {
  return read_object(value, std::tuple{Field{"values", out.emplace<Values>().list, kRequired}});
}
static Status read_repeated(JsonValue value, Source& out) {
  Repeated& repeated = out.emplace<Repeated>();
  Count count{repeated.count};
  return read_object(value,
                     std::tuple{Field{"fill", repeated.value, kRequired}, Field{"count", count, kRequired}});
}

struct Seed {
  uint64_t& value;
};
static Status read(JsonValue value, Seed& out) {
  int64_t seed = 0;
  Count count{seed};
  ATTNGRAPH_RETURN_IF_ERROR(read_object(value, std::tuple{Field{"seed", count, kRequired}}));
  out.value = static_cast<uint64_t>(seed);
  return {};
}
static Status read_random(JsonValue value, Source& out) {
  Random& random = out.emplace<Random>();
  Seed seed{random.seed};
  Count count{random.count};
  return read_object(value, std::tuple{Field{"random", seed, kRequired}, Field{"count", count, kRequired}});
}
static Status read_view(JsonValue value, Source& out) {
  View& view = out.emplace<View>();
  Count offset{view.offset};
  return read_object(value, std::tuple{Field{"view_of", view.of, kRequired}, Field{"offset", offset}});
}
static Status read_null(JsonValue value, Source& out) {
  out = NullPointer{};
  bool is_null = false;
  ATTNGRAPH_RETURN_IF_ERROR(read_object(value, std::tuple{Field{"null", is_null, kRequired}}));
  return is_null ? Status() : value.at("null").refuse("must be true");
}

static Status read(JsonValue value, Source& out) {
  using Reader = Status (*)(JsonValue, Source&);
  for (const auto& [key, reader] : {std::pair<const char*, Reader>{"values", read_values},
                                    {"fill", read_repeated},
                                    {"random", read_random},
                                    {"view_of", read_view},
                                    {"null", read_null}})
    if (value.find(key)) return reader(value, out);
  return value.refuse("must be an object with values, fill, random, view_of or null");
}

static Status read(JsonValue value, SameAs& out) {
  Count step{out.step};
  return read_object(value, std::tuple{Field{"step", step, kRequired}, Field{"uid", out.uid, kRequired}});
}

static Status read(JsonValue value, Expectation& out) {
  if (value.kind() == JsonKind::kString && value.text() == "reference") {
    out = AsReference{};
    return {};
  }
  if (value.find("values"))
    return read_object(value, std::tuple{Field{"values", out.emplace<WantedList>().list, kRequired}});
  if (value.find("fill"))
    return read_object(value, std::tuple{Field{"fill", out.emplace<WantedEverywhere>().value, kRequired}});
  if (value.find("same_as"))
    return read_object(value, std::tuple{Field{"same_as", out.emplace<SameAs>(), kRequired}});
  return value.refuse("must be \"reference\" or an object with values, fill or same_as");
}

/// An object whose keys are uids.
template <class T>
static Status read(JsonValue value, std::map<Uid, T>& out) {
  if (value.kind() != JsonKind::kObject) return value.refuse("must be an object of uids");
  for (const JsonValue member : value) {
    const std::optional<int64_t> uid = parse_integer(member.key());
    if (!uid) return fail(Code::kInvalidGraph, member.path(), ": key \"", member.key(), "\"; must be a uid");
    ATTNGRAPH_RETURN_IF_ERROR(read(member, out[*uid]));
  }
  return {};
}

static Status read(JsonValue value, Tolerance& out) {
  ATTNGRAPH_RETURN_IF_ERROR(
      read_object(value, std::tuple{Field{"abs", out.abs, kRequired}, Field{"rel", out.rel, kRequired}}));
  return out.abs >= 0 && out.rel >= 0 ? Status() : value.refuse("must hold nothing below 0");
}

static Status read(JsonValue value, ExpectedError& out) {
  return read_object(value,
                     std::tuple{Field{"stage", out.stage, kRequired}, Field{"code", out.code, kRequired},
                                Field{"words", out.words, kRequired}});
}

static Status read(JsonValue value, WorkspaceFault& out) {
  Count short_by{out.short_by_bytes}, misaligned_by{out.misaligned_by_bytes};
  return read_object(
      value, std::tuple{Field{"short_by_bytes", short_by}, Field{"misaligned_by_bytes", misaligned_by}});
}

static Status read(JsonValue value, GraphText& out) {
  out.status = attngraph::read(value, out.graph);
  return {};
}

static Status read(JsonValue value, Step& out) {
  ATTNGRAPH_RETURN_IF_ERROR(read_object(
      value,
      std::tuple{Field{"graph", out.text, kRequired}, Field{"bind", out.bind}, Field{"expect", out.expect},
                 Field{"tolerance", out.tolerance}, Field{"expect_error", out.expect_error},
                 Field{"workspace_bytes_at_most", out.workspace_bytes_at_most},
                 Field{"workspace", out.workspace}, Field{"validate_bindings", out.validate_bindings}}));
  if (out.expect.empty() && !out.expect_error && !out.workspace_bytes_at_most)
    return fail(Code::kInvalidGraph, value.path(),
                ": expects nothing; must have expect, expect_error or workspace_bytes_at_most");
  if (!out.expect.empty() && (out.expect_error || !out.bind))
    return fail(Code::kInvalidGraph, value.path(),
                ": has expect; must have bind and no expect_error beside it");
  return {};
}

Result<Case> parse_case(const std::string& json) {
  const Result<JsonDocument> document = JsonDocument::parse(json);
  if (!document.ok()) return document.status();
  const JsonValue root = document->root();
  JsonHeader header{kCaseFormat, kCaseVersion};
  ATTNGRAPH_RETURN_IF_ERROR(check_header(root, header));
  Case read_case;
  ATTNGRAPH_RETURN_IF_ERROR(
      read_object(root, std::tuple{Field{"format", header.format, kRequired},
                                   Field{"version", header.version, kRequired}, Field{"name", read_case.name},
                                   Field{"why", read_case.why}, Field{"steps", read_case.steps, kRequired}}));
  return read_case;
}

}  // namespace attngraph::cli
