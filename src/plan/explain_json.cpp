#include <string_view>

#include "base/json_writer.hpp"
#include "base/message.hpp"
#include "plan/explain.hpp"
#include "plan/slices.hpp"

namespace attngraph {
namespace {

template <class Body>
void object(JsonWriter& json, Body&& body) {
  json.open_object();
  body();
  json.close();
}

template <class Body>
void lines(JsonWriter& json, Body&& body) {
  json.open_array(JsonWriter::Style::kLines);
  body();
  json.close();
}

template <class Value>
void field(JsonWriter& json, std::string_view name, const Value& value) {
  json.key(name);
  json.value(value);
}

void write_reasons(JsonWriter& json, const std::vector<EngineSupport>& engines) {
  lines(json, [&] {
    for (const EngineSupport& engine : engines)
      for (const Reason& reason : engine.reasons)
        object(json, [&] {
          field(json, "engine", engine.engine);
          field(json, "code", name_of(reason.code));
          field(json, "subject", reason.subject);
          field(json, "has", reason.has);
          field(json, "wants", reason.wants);
          field(json, "since", reason.since);
        });
  });
}

void write_node(JsonWriter& json, const PlanCore& core, size_t n) {
  const Problem& problem = core.program.nodes[n].problem;
  const NodePlan& node = core.nodes[n];
  object(json, [&] {
    field(json, "problem", text(problem));
    field(json, "engine", node.engine->name());
    field(json, "launch", node.launch->describe());
    field(json, "deterministic", node.launch->deterministic());
    if (node.tuning) field(json, "autotuned", tuning_text(*node.tuning));
    field(json, "slices", count_slices(node.shape, problem.batch, problem.kv_heads).total());
    field(json, "slice_batch", node.shape.batch);
    field(json, "slice_kv_heads", node.shape.kv_heads);
    json.key("passed_over");
    write_reasons(json, node.passed_over);
  });
}

void write_workspace(JsonWriter& json, const WorkspaceLayout& workspace) {
  object(json, [&] {
    field(json, "bytes", workspace.bytes());
    field(json, "guard_bytes", workspace.guard_bytes());
    field(json, "phases", int64_t{workspace.num_phases()});
    json.key("regions");
    lines(json, [&] {
      for (size_t i = 0; i < workspace.entries().size(); ++i) {
        const Booking& booking = workspace.entries()[i].booking;
        const int node = workspace.entries()[i].node;
        object(json, [&] {
          field(json, "name", booking.name);
          field(json, "node", int64_t{node});
          field(json, "offset", workspace.regions()[i].offset);
          field(json, "bytes", booking.bytes);
          field(json, "first_phase", int64_t{booking.lifetime.first});
          field(json, "last_phase", int64_t{booking.lifetime.last});
          field(json, "fill", name_of(booking.fill));
        });
      }
    });
  });
}

void write_curve(JsonWriter& json, const PlanCore& core) {
  const auto curve = workspace_curve(core);
  lines(json, [&] {
    for (const CurvePoint& point : curve.ok() ? *curve : std::vector<CurvePoint>())
      object(json, [&] {
        field(json, "slices", point.slices);
        field(json, "bytes", point.bytes);
      });
  });
}

void write_tensors(JsonWriter& json, const PlanState& state) {
  lines(json, [&] {
    for (size_t slot = 0; slot < state.names.size(); ++slot) {
      const SlotFacts& facts = state.core->slots[slot];
      object(json, [&] {
        field(json, "uid", state.names[slot].uid);
        field(json, "name", state.names[slot].name);
        field(json, "bytes", facts.footprint_bytes);
        field(json, "alignment", facts.alignment);
        field(json, "output", facts.is_written);
        field(json, "virtual", facts.is_virtual);
      });
    }
  });
}

}  // namespace

std::string explain_json(const PlanState& state) {
  const PlanCore& core = *state.core;
  JsonWriter json;
  object(json, [&] {
    field(json, "format", "attngraph.plan");
    field(json, "version", int64_t{1});
    field(json, "target", target_text(core.target));
    field(json, "varying", varying_text(core.options.varying));
    json.key("nodes");
    lines(json, [&] {
      for (size_t n = 0; n < core.nodes.size(); ++n) write_node(json, core, n);
    });
    json.key("workspace");
    write_workspace(json, core.workspace);
    json.key("workspace_by_slices");
    write_curve(json, core);
    json.key("tensors");
    write_tensors(json, state);
  });
  return std::move(json).take();
}

}  // namespace attngraph
