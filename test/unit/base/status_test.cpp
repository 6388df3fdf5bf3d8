#include "attngraph/status.hpp"

#include "support/catch.hpp"

using namespace attngraph;

namespace {

Result<int> refused() { return Status(Code::kUnsupported, "dims: are 3; must be 4, as logical order says"); }

}  // namespace

TEST_CASE("a reference to the message of a result that is gone stays alive", "[status]") {
  const std::string& message = refused().status().message();
  CHECK(message == "dims: are 3; must be 4, as logical order says");
}
