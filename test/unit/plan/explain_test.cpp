#include "plan/explain.hpp"

#include <limits>

#include "support/catch.hpp"
#include "support/stub_engine.hpp"

using namespace attngraph;
using namespace attngraph::test;

namespace {

/// `count` regions of falling size over four phases.
Plan plan_of_regions(int count) {
  StubBehaviour behaviour;
  behaviour.regions = [count](const Problem&, const SliceShape&) {
    std::vector<Booking> bookings;
    for (int i = 0; i < count; ++i) {
      Booking booking;
      booking.name = "region<" + std::to_string(i) + ">";
      booking.bytes = (int64_t{1} << 20) / (1 + i * i);
      booking.lifetime = {i % 4, std::min(3, i % 4 + i % 3)};
      bookings.push_back(booking);
    }
    return bookings;
  };
  return plan_program(forward_program(2, 2, 4, 8), {}, stub_engines({behaviour})).value();
}

size_t count_of(const std::string& text, const std::string& word) {
  size_t count = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

}  // namespace

TEST_CASE("the picture names every region with its size and stays inside its frame", "[explain]") {
  const int count = GENERATE(0, 1, 2, 20);
  const Plan plan = plan_of_regions(count);
  const std::string svg = plan.explain_svg();
  CHECK(svg.rfind("<svg xmlns=\"http://www.w3.org/2000/svg\"", 0) == 0);
  CHECK(count_of(svg, "<text") == count_of(svg, "</text>"));
  CHECK(count_of(svg, "region<") == 0);  // markup in a name is escaped
  for (int i = 0; i < count; ++i) CHECK(count_of(svg, "region&lt;" + std::to_string(i) + "&gt;") >= 1);
}

TEST_CASE("explain gives problem, engine and workspace map in words", "[explain]") {
  const std::string words = plan_of_regions(2).explain();
  for (const char* word : {"target: host portable, 1 threads", "node 0: f32 forward b2 h2:2 s4:4 d8:8",
                           "engine stub: does what the test says", "workspace: 1048576 bytes",
                           "node 0 region<0>", "node 0 region<1>"})
    CHECK(words.find(word) != std::string::npos);
}

TEST_CASE("explain gives the same map as JSON", "[explain]") {
  const std::string json = plan_of_regions(2).explain_json();
  for (const char* word : {"\"format\":", "\"attngraph.plan\"", "\"region<1>\"", "524288", "\"first_phase\"",
                           "\"workspace_by_slices\"", "\"does what the test says\""})
    CHECK(json.find(word) != std::string::npos);
}

TEST_CASE("bytes are written in the largest unit that is not below one", "[explain]") {
  CHECK(bytes_text(0) == "0 B");
  CHECK(bytes_text(1023) == "1023 B");
  CHECK(bytes_text(1536) == "1.50 KiB");
  CHECK(bytes_text(int64_t{1} << 31) == "2.00 GiB");
  CHECK(bytes_text(std::numeric_limits<int64_t>::max()) == "8.00 EiB");
}
