#include "cli/files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "attngraph/json.hpp"
#include "base/message.hpp"

namespace attngraph::cli {
namespace {

constexpr size_t kMostFileBytes = size_t{1} << 30;  // a device file may have no end

/// A file descriptor that closes itself.
struct Descriptor {
  int fd = -1;
  explicit Descriptor(int opened) : fd(opened) {}
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
};

Status system_failure(Code code, const std::string& path, const char* call) {
  return fail(code, path, ": ", call, " fails with ", errno, ", ", std::strerror(errno));
}

Status write_all(int fd, const std::string& path, const std::string& content) {
  size_t written = 0;
  while (written < content.size()) {
    const ssize_t count = write(fd, content.data() + written, content.size() - written);
    if (count < 0 && errno != EINTR) return system_failure(Code::kBackend, path, "write");
    if (count > 0) written += static_cast<size_t>(count);
  }
  return fsync(fd) == 0 ? Status() : system_failure(Code::kBackend, path, "fsync");
}

}  // namespace

Result<std::string> read_file(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.fd < 0) return system_failure(Code::kInvalidGraph, path, "open");
  std::string content;
  std::array<char, 1 << 16> block;
  for (;;) {
    const ssize_t count = read(file.fd, block.data(), block.size());
    if (count == 0) return content;
    if (content.size() > kMostFileBytes)
      return fail(Code::kInvalidGraph, path, ": has more than ", kMostFileBytes, " bytes; must have less");
    if (count > 0)
      content.append(block.data(), static_cast<size_t>(count));
    else if (errno != EINTR)
      return system_failure(Code::kInvalidGraph, path, "read");
  }
}

Result<Graph> read_graph(const Arguments& arguments) {
  if (arguments.positional().size() != 1)
    return fail(Code::kInvalidGraph, "GRAPH.json: has ", arguments.positional().size(),
                " files; must be one");
  const std::string& path = arguments.positional().front();
  const Result<std::string> content = read_file(path);
  ATTNGRAPH_RETURN_IF_ERROR(content.status());
  Result<Graph> graph = parse(*content);
  if (!graph.ok()) return fail(Code::kInvalidGraph, path, ": ", graph.status().message());
  return graph;
}

Status write_file(const std::string& path, const std::string& content) {
  std::string temporary = path + ".XXXXXX";
  const Descriptor file(mkstemp(temporary.data()));
  if (file.fd < 0) return system_failure(Code::kBackend, path, "mkstemp");
  Status status = write_all(file.fd, path, content);
  // mkstemp gives 0600; a result file is as readable as any other.
  if (status.ok() && fchmod(file.fd, S_IRUSR | S_IWUSR | S_IRGRP | S_IROTH) != 0)
    status = system_failure(Code::kBackend, path, "fchmod");
  if (status.ok() && std::rename(temporary.c_str(), path.c_str()) != 0)
    status = system_failure(Code::kBackend, path, "rename");
  if (!status.ok()) unlink(temporary.c_str());
  return status;
}

}  // namespace attngraph::cli
