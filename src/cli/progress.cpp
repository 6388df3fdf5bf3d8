#include "cli/progress.hpp"

namespace attngraph::cli {
namespace {

constexpr const char* kEraseLine = "\r\x1b[K";  // ECMA-48: carriage return, erase to the end of the line

}  // namespace

void Progress::show(const std::string& line) {
  const auto now = std::chrono::steady_clock::now();
  if (!io_.err_is_terminal || now < next_) return;
  next_ = now + std::chrono::milliseconds(100);
  io_.err << kEraseLine << line << std::flush;
  shown_ = true;
}

void Progress::clear() {
  if (!shown_) return;
  io_.err << kEraseLine << std::flush;
  shown_ = false;
}

}  // namespace attngraph::cli
