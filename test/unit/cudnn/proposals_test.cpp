#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "engine/cudnn/build.hpp"
#include "engine/cudnn/lower.hpp"
#include "support/catch.hpp"
#include "unit/cudnn/lowered.hpp"

using namespace attngraph;
using namespace attngraph::cudnn;
using namespace attngraph::test;

namespace {

/// What a descriptor of the stand-in for cuDNN holds: an engine's number, or the mode of a heuristic.
struct Fake {
  int64_t engine = 0;
  cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_INSTANT;
};

/// Engines that the stand-in's heuristics propose, and those whose plans it does not finalize.
struct Script {
  std::map<cudnnBackendHeurMode_t, std::vector<int64_t>> proposed;
  std::vector<cudnnBackendHeurMode_t> asked;
  std::set<int64_t> broken;
  cudnnStatus_t broken_code = CUDNN_STATUS_NOT_SUPPORTED;
  std::set<Fake*> alive, plans;
};
Script script;

size_t get_version() { return 91900; }
const char* error_string(cudnnStatus_t) { return "CUDNN_STATUS_TEST"; }
void last_error(char* text, size_t) { text[0] = '\0'; }
Fake* fake(cudnnBackendDescriptor_t descriptor) { return static_cast<Fake*>(descriptor); }

cudnnStatus_t create_descriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* descriptor) {
  auto* made = new Fake;
  script.alive.insert(made);
  if (type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) script.plans.insert(made);
  *descriptor = made;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t destroy_descriptor(cudnnBackendDescriptor_t descriptor) {
  script.alive.erase(fake(descriptor)), script.plans.erase(fake(descriptor));
  delete fake(descriptor);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t set_attribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                            cudnnBackendAttributeType_t, int64_t, const void* values) {
  if (name == CUDNN_ATTR_ENGINEHEUR_MODE)
    fake(descriptor)->mode = *static_cast<const cudnnBackendHeurMode_t*>(values);
  if (name == CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)
    fake(descriptor)->engine = fake(*static_cast<const cudnnBackendDescriptor_t*>(values))->engine;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t get_attribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                            cudnnBackendAttributeType_t, int64_t room, int64_t* count, void* values) {
  auto* descriptors = static_cast<cudnnBackendDescriptor_t*>(values);
  *count = 1;
  switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS: {
      script.asked.push_back(fake(descriptor)->mode);
      const std::vector<int64_t>& proposed = script.proposed[fake(descriptor)->mode];
      *count = std::min(room, static_cast<int64_t>(proposed.size()));
      for (int64_t i = 0; i < *count; ++i) fake(descriptors[i])->engine = proposed[static_cast<size_t>(i)];
      break;
    }
    case CUDNN_ATTR_ENGINECFG_ENGINE:
    case CUDNN_ATTR_ENGINECFG_KNOB_CHOICES:
      fake(descriptors[0])->engine = fake(descriptor)->engine;
      break;
    case CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE:
      *static_cast<cudnnBackendKnobType_t*>(values) = CUDNN_KNOB_TYPE_STAGES;
      break;
    default:  // the engine's number, its knob, its workspace
      *static_cast<int64_t*>(values) = fake(descriptor)->engine;
  }
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t finalize(cudnnBackendDescriptor_t descriptor) {
  const bool is_broken =
      script.plans.contains(fake(descriptor)) && script.broken.contains(fake(descriptor)->engine);
  return is_broken ? script.broken_code : CUDNN_STATUS_SUCCESS;
}

const Library& library() {
  static const Library made([] {
    Functions functions;
    functions.get_version = get_version;
    functions.get_error_string = error_string;
    functions.get_last_error_string = last_error;
    functions.create_descriptor = create_descriptor;
    functions.destroy_descriptor = destroy_descriptor;
    functions.set_attribute = set_attribute;
    functions.get_attribute = get_attribute;
    functions.finalize = finalize;
    return functions;
  }());
  return made;
}

Result<Proposals> propose(std::vector<int64_t> best, std::vector<int64_t> fallback,
                          std::set<int64_t> broken = {}) {
  script.proposed = {{CUDNN_HEUR_MODE_A, std::move(best)}, {CUDNN_HEUR_MODE_FALLBACK, std::move(fallback)}};
  script.broken = std::move(broken);
  script.asked.clear();
  script.broken_code = CUDNN_STATUS_NOT_SUPPORTED;
  return Proposals::make(library(), lower(lowered_problems().front().problem), nullptr);
}

std::string engine_of(const Result<BuiltPlan>& built) { return built.ok() ? built->engine : "none"; }

}  // namespace

TEST_CASE("proposals are those of mode A, then the fallback's, each once, with engine and knobs", "[cudnn]") {
  {
    auto proposals = propose({8, 5, 8}, {5, 3});
    REQUIRE(proposals.ok());
    REQUIRE(proposals->count().value() == 3);
    const int knob = static_cast<int>(CUDNN_KNOB_TYPE_STAGES);
    for (const auto& [index, engine] : {std::pair{0, 8}, {1, 5}, {2, 3}}) {
      const auto built = proposals->build(index);
      CHECK(engine_of(built) == "engine " + std::to_string(engine) + ", knob " + std::to_string(knob) + ": " +
                                    std::to_string(engine));
      CHECK(built->workspace_bytes == engine);
    }
    CHECK(proposals->build(3).status().message() ==
          "cudnn heuristics: have 3 engines; must have more than 3");
  }
  CHECK(script.alive.empty());
}

TEST_CASE("a plan is the first proposal that builds, also one of the fallback's", "[cudnn]") {
  CHECK(engine_of(propose({8, 5}, {3})->build_first()).find("engine 8,") == 0);
  CHECK(engine_of(propose({8, 5}, {3}, {8})->build_first()).find("engine 5,") == 0);
  CHECK(engine_of(propose({8, 5}, {3}, {8, 5})->build_first()).find("engine 3,") == 0);
  CHECK(propose({8, 5}, {3}, {8})->build(0).status().code() == Code::kUnsupported);
  CHECK(script.alive.empty());
}

TEST_CASE("when no proposal builds, every reason is told, and a failure is no refusal", "[cudnn]") {
  auto proposals = propose({8, 5}, {}, {8, 5});
  const auto refused = proposals->build_first();
  REQUIRE(!refused.ok());
  CHECK(refused.status().code() == Code::kUnsupported);
  const std::string reason = "cudnnBackendFinalize of an execution plan: CUDNN_STATUS_TEST (3000)";
  const size_t first = refused.status().message().find(reason);
  REQUIRE(first != std::string::npos);
  CHECK(refused.status().message().find(reason, first + 1) != std::string::npos);
  script.broken_code = CUDNN_STATUS_INTERNAL_ERROR;
  CHECK(proposals->build_first().status().code() == Code::kBackend);
}

TEST_CASE("no proposals are a refusal", "[cudnn]") {
  for (auto none : {propose({}, {})->build_first().status(), propose({}, {})->count().status()}) {
    CHECK(none.code() == Code::kUnsupported);
    CHECK(none.message() == "cudnn heuristics: have no engine; must have one");
  }
  CHECK(script.alive.empty());
}

TEST_CASE("the fallback is asked when no other proposal builds", "[cudnn]") {
  CHECK(propose({8}, {3})->build_first().ok());
  CHECK(script.asked == std::vector{CUDNN_HEUR_MODE_A});
  CHECK(propose({8}, {3}, {8})->build_first().ok());
  CHECK(script.asked == std::vector{CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK});
}
