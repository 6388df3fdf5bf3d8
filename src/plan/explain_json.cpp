#include <cstdio>
#include <string_view>

#include "base/message.hpp"
#include "plan/explain.hpp"
#include "plan/slices.hpp"

namespace attngraph {
namespace {

/// Appends one JSON document to a string; the caller nests calls as the document nests. The reader's
/// library stays out of the planner: what is written here is a tree of known shape.
class JsonWriter {
 public:
  template <class Body>
  void object(Body&& body) {
    nest('{', '}', body);
  }
  template <class Body>
  void array(Body&& body) {
    nest('[', ']', body);
  }
  void key(std::string_view name) {
    separate();
    quote(name);
    out_ += ':';
    needs_comma_ = false;
  }
  void value(std::string_view string) { separate(), quote(string); }
  void value(int64_t number) { separate(), out_ += std::to_string(number); }
  void value(bool flag) { separate(), out_ += flag ? "true" : "false"; }
  template <class Value>
  void field(std::string_view name, const Value& v) {
    key(name), value(v);
  }

  std::string take() { return std::move(out_); }

 private:
  template <class Body>
  void nest(char open, char close, Body&& body) {
    separate();
    out_ += open;
    needs_comma_ = false;
    body();
    out_ += close;
    needs_comma_ = true;
  }
  void separate() {
    if (needs_comma_) out_ += ',';
    needs_comma_ = true;
  }
  void quote(std::string_view string) {
    out_ += '"';
    for (const char c : string) {
      if (c == '"' || c == '\\') {
        out_ += '\\';
        out_ += c;
      } else if (static_cast<unsigned char>(c) < 0x20) {
        char escaped[8];
        std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(c));
        out_ += escaped;
      } else {
        out_ += c;
      }
    }
    out_ += '"';
  }

  std::string out_;
  bool needs_comma_ = false;
};

void write_reasons(JsonWriter& json, const std::vector<EngineSupport>& engines) {
  json.array([&] {
    for (const EngineSupport& engine : engines)
      for (const Reason& reason : engine.reasons)
        json.object([&] {
          json.field("engine", std::string_view(engine.engine));
          json.field("code", name_of(reason.code));
          json.field("subject", std::string_view(reason.subject));
          json.field("has", std::string_view(reason.has));
          json.field("wants", std::string_view(reason.wants));
          json.field("since", std::string_view(reason.since));
        });
  });
}

void write_node(JsonWriter& json, const PlanCore& core, size_t n) {
  const Problem& problem = core.program.nodes[n].problem;
  const NodePlan& node = core.nodes[n];
  json.object([&] {
    json.field("problem", std::string_view(text(problem)));
    json.field("engine", node.engine->name());
    json.field("launch", std::string_view(node.launch->describe()));
    json.field("deterministic", node.launch->deterministic());
    json.field("slices", count_slices(node.shape, problem.batch, problem.kv_heads).total());
    json.field("slice_batch", node.shape.batch);
    json.field("slice_kv_heads", node.shape.kv_heads);
    json.key("passed_over");
    write_reasons(json, node.passed_over);
  });
}

void write_workspace(JsonWriter& json, const WorkspaceLayout& workspace) {
  json.object([&] {
    json.field("bytes", workspace.bytes());
    json.field("guard_bytes", workspace.guard_bytes());
    json.field("phases", int64_t{workspace.num_phases()});
    json.key("regions");
    json.array([&] {
      for (size_t i = 0; i < workspace.entries().size(); ++i) {
        const auto& [booking, node] = workspace.entries()[i];
        json.object([&] {
          json.field("name", std::string_view(booking.name));
          json.field("node", int64_t{node});
          json.field("offset", workspace.regions()[i].offset);
          json.field("bytes", booking.bytes);
          json.field("first_phase", int64_t{booking.lifetime.first});
          json.field("last_phase", int64_t{booking.lifetime.last});
          json.field("fill", name_of(booking.fill));
        });
      }
    });
  });
}

void write_tensors(JsonWriter& json, const PlanState& state) {
  json.array([&] {
    for (size_t slot = 0; slot < state.names.size(); ++slot) {
      const SlotFacts& facts = state.core->slots[slot];
      json.object([&] {
        json.field("uid", state.names[slot].uid);
        json.field("name", std::string_view(state.names[slot].name));
        json.field("bytes", facts.footprint_bytes);
        json.field("alignment", facts.alignment);
        json.field("output", facts.is_written);
        json.field("virtual", facts.is_virtual);
      });
    }
  });
}

}  // namespace

std::string explain_json(const PlanState& state) {
  const PlanCore& core = *state.core;
  JsonWriter json;
  json.object([&] {
    json.field("format", std::string_view("attngraph.plan"));
    json.field("version", int64_t{1});
    json.field("target", std::string_view(target_text(core.target)));
    json.key("nodes");
    json.array([&] {
      for (size_t n = 0; n < core.nodes.size(); ++n) write_node(json, core, n);
    });
    json.key("workspace");
    write_workspace(json, core.workspace);
    json.key("tensors");
    write_tensors(json, state);
  });
  return json.take();
}

}  // namespace attngraph
