#include "engine/cudnn/library.hpp"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/message.hpp"

namespace attngraph::cudnn {
namespace {

void* open_library(const char* path, bool loaded_only) {
  return dlopen(path, RTLD_NOW | RTLD_LOCAL | (loaded_only ? RTLD_NOLOAD : 0));
}

int append_path(dl_phdr_info* info, size_t, void* paths) {
  static_cast<std::vector<std::string>*>(paths)->emplace_back(info->dlpi_name);
  return 0;
}

std::vector<std::string> paths_of_process() {
  std::vector<std::string> paths;
  dl_iterate_phdr(append_path, &paths);
  return paths;
}

/// Where a wheel's libcudnn lies when other libraries of the process come from the same site-packages:
/// `nvidia/cudnn/lib` beside `nvidia/cu13/lib`.
std::vector<std::string> wheel_places(const std::vector<std::string>& loaded) {
  std::vector<std::string> places;
  for (const std::string& path : loaded) {
    for (const std::string_view folder : {"/nvidia/", "/site-packages/", "/dist-packages/"}) {
      const size_t at = path.rfind(folder);
      if (at == std::string::npos) continue;
      const std::string root = path.substr(0, folder == "/nvidia/" ? at : at + folder.size() - 1);
      std::string place = root + "/nvidia/cudnn/lib/" + kSoname;
      if (std::find(places.begin(), places.end(), place) == places.end()) places.push_back(std::move(place));
    }
  }
  return places;
}

/// Fills `function` from the library; the name of the entry point when it has none.
template <class Function>
const char* resolve(const Linker& linker, void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(linker.symbol(library, name));
  return function == nullptr ? name : nullptr;
}

/// The first entry point that the library lacks, or null.
const char* resolve_all(const Linker& linker, void* library, Functions& f) {
  const std::array missing = {
      resolve(linker, library, "cudnnGetVersion", f.get_version),
      resolve(linker, library, "cudnnGetErrorString", f.get_error_string),
      resolve(linker, library, "cudnnGetLastErrorString", f.get_last_error_string),
      resolve(linker, library, "cudnnCreate", f.create),
      resolve(linker, library, "cudnnDestroy", f.destroy),
      resolve(linker, library, "cudnnSetStream", f.set_stream),
      resolve(linker, library, "cudnnBackendCreateDescriptor", f.create_descriptor),
      resolve(linker, library, "cudnnBackendDestroyDescriptor", f.destroy_descriptor),
      resolve(linker, library, "cudnnBackendSetAttribute", f.set_attribute),
      resolve(linker, library, "cudnnBackendGetAttribute", f.get_attribute),
      resolve(linker, library, "cudnnBackendFinalize", f.finalize),
      resolve(linker, library, "cudnnBackendExecute", f.execute),
  };
  const auto first = std::find_if(missing.begin(), missing.end(), [](const char* name) { return name; });
  return first == missing.end() ? nullptr : *first;
}

}  // namespace

Linker Linker::system() { return {open_library, dlsym, paths_of_process}; }

Result<std::shared_ptr<const Library>> Library::find(const std::string& path, const Linker& linker) {
  std::string tried;
  const auto open = [&](const std::string& place, bool loaded_only) {
    void* library = linker.open(place.c_str(), loaded_only);
    if (library == nullptr && !loaded_only) tried += (tried.empty() ? "" : ", ") + place;
    return library;
  };
  void* library = nullptr;
  if (!path.empty()) {
    library = open(path, /*loaded_only=*/false);
  } else {
    library = open(kSoname, /*loaded_only=*/true);
    if (library == nullptr) library = open(kSoname, /*loaded_only=*/false);
    if (library == nullptr)
      for (const std::string& place : wheel_places(linker.loaded_paths()))
        if (library == nullptr) library = open(place, /*loaded_only=*/false);
  }
  if (library == nullptr)
    return fail(Code::kBackend, "cudnn: not found at ", tried, "; must be where the dynamic linker looks");
  Functions functions;
  if (const char* missing = resolve_all(linker, library, functions))
    return fail(Code::kBackend, "cudnn: has no ", missing, "; must be version ", version_text(kOldestVersion),
                " or newer");
  if (functions.get_version() < kOldestVersion)
    return fail(Code::kBackend, "cudnn: is version ", version_text(static_cast<int>(functions.get_version())),
                "; must be ", version_text(kOldestVersion), " or newer");
  return std::make_shared<const Library>(functions);
}

Status Library::status_of(std::string_view call, cudnnStatus_t code) const {
  if (code == CUDNN_STATUS_SUCCESS) return {};
  std::array<char, 512> words = {};
  functions_.get_last_error_string(words.data(), words.size());
  const int number = static_cast<int>(code);
  return fail(number / 1000 == 3 ? Code::kUnsupported : Code::kBackend, call, ": ",
              functions_.get_error_string(code), " (", number, "), ", words.data(), "; must succeed");
}

std::string version_text(int version) {
  return text(version / 10000, '.', version / 100 % 100, '.', version % 100);
}

}  // namespace attngraph::cudnn
