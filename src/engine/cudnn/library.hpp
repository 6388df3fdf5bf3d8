#pragma once

#include <cudnn_graph.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "attngraph/status.hpp"

namespace attngraph::cudnn {

/// The entry points that the engine calls. Tests put their own in.
struct Functions {
  decltype(&cudnnGetVersion) get_version = nullptr;
  decltype(&cudnnGetErrorString) get_error_string = nullptr;
  decltype(&cudnnGetLastErrorString) get_last_error_string = nullptr;
  decltype(&cudnnCreate) create = nullptr;
  decltype(&cudnnDestroy) destroy = nullptr;
  decltype(&cudnnSetStream) set_stream = nullptr;
  decltype(&cudnnBackendCreateDescriptor) create_descriptor = nullptr;
  decltype(&cudnnBackendDestroyDescriptor) destroy_descriptor = nullptr;
  decltype(&cudnnBackendSetAttribute) set_attribute = nullptr;
  decltype(&cudnnBackendGetAttribute) get_attribute = nullptr;
  decltype(&cudnnBackendFinalize) finalize = nullptr;
  decltype(&cudnnBackendExecute) execute = nullptr;
};

/// What the search asks of the dynamic linker. Tests put their own in.
struct Linker {
  /// Opens a library; with `loaded_only`, only one that the process has already. Null: not there.
  void* (*open)(const char* path, bool loaded_only);
  void* (*symbol)(void* library, const char* name);
  /// Paths of all libraries of the process.
  std::vector<std::string> (*loaded_paths)();

  static Linker system();
};

inline constexpr const char* kSoname = "libcudnn.so.9";
inline constexpr size_t kOldestVersion = 91900;  ///< the lowering is that of 9.19

/// cuDNN as this process has it: resolved once, never closed, as its sub-libraries outlive a dlclose.
class Library {
 public:
  explicit Library(const Functions& functions) : functions_(functions) {}

  /// Looks at `path` alone when it is not empty; else for a library that the process has loaded, then for
  /// the soname, then beside the wheels of NVIDIA that the process has loaded something from.
  ///
  /// Errors: kBackend naming every place that was tried, an entry point that is missing, or the version.
  static Result<std::shared_ptr<const Library>> find(const std::string& path, const Linker& linker);

  const Functions* operator->() const { return &functions_; }
  int version() const { return static_cast<int>(functions_.get_version()); }

  /// Success; kUnsupported for codes 3000 to 3999, by which cuDNN says that it cannot; else kBackend:
  /// "cudnnBackendFinalize of tensor q: CUDNN_STATUS_BAD_PARAM (2000), <text>; must succeed".
  Status status_of(std::string_view call, cudnnStatus_t code) const;

 private:
  Functions functions_;
};

/// "9.19.0" of 91900.
std::string version_text(int version);

}  // namespace attngraph::cudnn
