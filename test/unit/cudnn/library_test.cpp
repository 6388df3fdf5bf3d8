#include "engine/cudnn/library.hpp"

#include <cstring>

#include "engine/cudnn/build.hpp"
#include "engine/cudnn/handles.hpp"
#include "engine/cudnn/lower.hpp"
#include "support/catch.hpp"
#include "unit/cudnn/lowered.hpp"

using namespace attngraph;
using namespace attngraph::cudnn;
using namespace attngraph::test;

namespace {

/// What the stand-in for the dynamic linker and for cuDNN was asked, and what it answers.
struct Script {
  std::vector<std::string> opened;  ///< "loaded:" before a path that was asked for as loaded only
  std::string present;              ///< the path that opens
  std::vector<std::string> loaded_paths;
  std::string missing;  ///< the entry point that the library lacks
  size_t version = 91900;
  cudnnStatus_t finalize = CUDNN_STATUS_SUCCESS;
  int descriptors = 0, handles = 0, streams = 0;
};
Script script;

void* open_library(const char* path, bool loaded_only) {
  script.opened.push_back((loaded_only ? "loaded:" : "") + std::string(path));
  return script.opened.back() == script.present ? &script : nullptr;
}
std::vector<std::string> loaded_paths() { return script.loaded_paths; }

size_t get_version() { return script.version; }
const char* error_string(cudnnStatus_t) { return "CUDNN_STATUS_TEST"; }
void last_error(char* text, size_t size) { std::strncpy(text, "words of the library", size); }
cudnnStatus_t create(cudnnHandle_t* handle) {
  *handle = reinterpret_cast<cudnnHandle_t>(static_cast<intptr_t>(++script.handles));
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t destroy(cudnnHandle_t) {
  --script.handles;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t set_stream(cudnnHandle_t, cudaStream_t) {
  ++script.streams;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t create_descriptor(cudnnBackendDescriptorType_t, cudnnBackendDescriptor_t* descriptor) {
  *descriptor = &script;
  ++script.descriptors;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t destroy_descriptor(cudnnBackendDescriptor_t) {
  --script.descriptors;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t set_attribute(cudnnBackendDescriptor_t, cudnnBackendAttributeName_t,
                            cudnnBackendAttributeType_t, int64_t, const void*) {
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t get_attribute(cudnnBackendDescriptor_t, cudnnBackendAttributeName_t,
                            cudnnBackendAttributeType_t, int64_t, int64_t* count, void*) {
  *count = 0;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t finalize(cudnnBackendDescriptor_t) { return script.finalize; }
cudnnStatus_t execute(cudnnHandle_t, cudnnBackendDescriptor_t, cudnnBackendDescriptor_t) {
  return CUDNN_STATUS_SUCCESS;
}

const std::pair<const char*, void*> kSymbols[] = {
    {"cudnnGetVersion", reinterpret_cast<void*>(get_version)},
    {"cudnnGetErrorString", reinterpret_cast<void*>(error_string)},
    {"cudnnGetLastErrorString", reinterpret_cast<void*>(last_error)},
    {"cudnnCreate", reinterpret_cast<void*>(create)},
    {"cudnnDestroy", reinterpret_cast<void*>(destroy)},
    {"cudnnSetStream", reinterpret_cast<void*>(set_stream)},
    {"cudnnBackendCreateDescriptor", reinterpret_cast<void*>(create_descriptor)},
    {"cudnnBackendDestroyDescriptor", reinterpret_cast<void*>(destroy_descriptor)},
    {"cudnnBackendSetAttribute", reinterpret_cast<void*>(set_attribute)},
    {"cudnnBackendGetAttribute", reinterpret_cast<void*>(get_attribute)},
    {"cudnnBackendFinalize", reinterpret_cast<void*>(finalize)},
    {"cudnnBackendExecute", reinterpret_cast<void*>(execute)},
};

void* symbol(void*, const char* name) {
  for (const auto& [known, function] : kSymbols)
    if (script.missing != name && std::strcmp(known, name) == 0) return function;
  return nullptr;
}

constexpr Linker kLinker = {open_library, symbol, loaded_paths};

Result<std::shared_ptr<const Library>> find(const Script& given, const std::string& path = "") {
  script = given;
  return Library::find(path, kLinker);
}

Script with_library() {
  Script given;
  given.present = "libcudnn.so.9";
  return given;
}

}  // namespace

TEST_CASE("cuDNN is looked for as loaded, then by its name, then beside other wheels of NVIDIA", "[cudnn]") {
  Script given;
  given.loaded_paths = {"/usr/lib/libc.so.6", "/env/lib/site-packages/nvidia/cu13/lib/libcudart.so.13",
                        "/opt/site-packages/attngraph/libattngraph.so"};
  const auto none = find(given);
  CHECK(script.opened == std::vector<std::string>{"loaded:libcudnn.so.9", "libcudnn.so.9",
                                                  "/env/lib/site-packages/nvidia/cudnn/lib/libcudnn.so.9",
                                                  "/opt/site-packages/nvidia/cudnn/lib/libcudnn.so.9"});
  REQUIRE(!none.ok());
  CHECK(none.status().code() == Code::kBackend);
  CHECK(none.status().message() ==
        "cudnn: not found at libcudnn.so.9, /env/lib/site-packages/nvidia/cudnn/lib/libcudnn.so.9, "
        "/opt/site-packages/nvidia/cudnn/lib/libcudnn.so.9; must be where the dynamic linker looks");
  for (const std::string& place : {script.opened[0], script.opened[1], script.opened[3]}) {
    given.present = place;
    CHECK(find(given).ok());
  }
}

TEST_CASE("a path that is given is the only place", "[cudnn]") {
  Script given = with_library();
  CHECK(!find(given, "/there/libcudnn.so.9").ok());
  CHECK(script.opened == std::vector<std::string>{"/there/libcudnn.so.9"});
}

TEST_CASE("a library that is too old or lacks an entry point is refused by its words", "[cudnn]") {
  Script given = with_library();
  given.version = 91801;
  CHECK(find(given).status().message() == "cudnn: is version 9.18.1; must be 9.19.0 or newer");
  given.missing = "cudnnBackendExecute";
  CHECK(find(given).status().message() ==
        "cudnn: has no cudnnBackendExecute; must be version 9.19.0 or newer");
}

TEST_CASE("a code of cuDNN that it cannot is unsupported, every other a failure of the backend", "[cudnn]") {
  const auto library = find(with_library());
  CHECK((*library)->status_of("call", CUDNN_STATUS_SUCCESS).ok());
  const Status cannot = (*library)->status_of("call", CUDNN_STATUS_NOT_SUPPORTED);
  CHECK(cannot.code() == Code::kUnsupported);
  CHECK(cannot.message() == "call: CUDNN_STATUS_TEST (3000), words of the library; must succeed");
  for (const cudnnStatus_t code :
       {CUDNN_STATUS_BAD_PARAM, CUDNN_STATUS_INTERNAL_ERROR, CUDNN_STATUS_EXECUTION_FAILED})
    CHECK((*library)->status_of("call", code).code() == Code::kBackend);
}

TEST_CASE("every descriptor that is made is destroyed, also when one fails", "[cudnn]") {
  const auto library = find(with_library());
  for (const cudnnStatus_t code : {CUDNN_STATUS_SUCCESS, CUDNN_STATUS_BAD_PARAM}) {
    for (const Lowered& row : lowered_problems()) {
      script.finalize = code;
      CHECK(BackendGraph::make(**library, lower(row.problem), nullptr).ok() ==
            (code == CUDNN_STATUS_SUCCESS));
      CHECK(script.descriptors == 0);
    }
  }
}

TEST_CASE("a handle is used by one owner at a time, for its device, and its stream is set when it differs",
          "[cudnn]") {
  const auto library = find(with_library());
  int other = 0;
  {
    Handles handles(*library);
    cudnnHandle_t first = nullptr;
    {
      const auto a = handles.take(0, nullptr);
      first = a->raw();
      CHECK(handles.take(0, nullptr)->raw() != first);
      CHECK(script.handles == 2);
    }
    CHECK(script.streams == 0);
    const cudnnHandle_t again = handles.take(0, &other)->raw();
    CHECK(script.streams == 1);
    CHECK(handles.take(0, &other)->raw() == again);
    CHECK(script.streams == 1);
    CHECK(handles.take(1, nullptr).ok());
    CHECK(handles.take(1, nullptr).ok());
    CHECK(script.handles == 3);
  }
  CHECK(script.handles == 0);
}
