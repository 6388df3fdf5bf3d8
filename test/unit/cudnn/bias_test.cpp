#include "engine/cudnn/bias.hpp"

#include "engine/cudnn/lower.hpp"
#include "support/catch.hpp"
#include "support/problems.hpp"

using namespace attngraph;
using namespace attngraph::cudnn;
using namespace attngraph::test;

namespace {

using enum Role;
using Extents = std::array<int64_t, 4>;

Problem forward() { return forward_problem({2, 4, 2, 64, 125, 64, 64}, DataType::kBf16); }
Problem backward() { return backward_problem(forward(), {kDq, kDk, kDv}); }

void mask(Problem& p, const Shape& shape) { add_matrix(p, kMask, DataType::kBool, shape); }

}  // namespace

TEST_CASE("the engine's own bias is no larger than what it is made of", "[cudnn]") {
  struct Row {
    const char* why;
    Problem problem;
    void (*change)(Problem&);
    Extents extent;
    DataType dtype;
  };
  const Row row = GENERATE(values<Row>({
      {"a mask of keys",
       forward(),
       [](Problem& p) {
         mask(p, {2, 1, 1, 125});
       },
       {2, 1, 1, 125},
       DataType::kBf16},
      {"cuDNN's backward wants rows",
       backward(),
       [](Problem& p) {
         mask(p, {2, 1, 1, 125});
       },
       {2, 1, 64, 125},
       DataType::kBf16},
      {"a mask of rows has all keys",
       forward(),
       [](Problem& p) {
         mask(p, {1, 4, 64, 1});
       },
       {1, 4, 64, 125},
       DataType::kBf16},
      {"a mask and a bias",
       forward(),
       [](Problem& p) {
         mask(p, {2, 1, 1, 125});
         add_matrix(p, kBias, DataType::kF16, {1, 4, 64, 125});
       },
       {2, 4, 64, 125},
       DataType::kF16},
      {"slopes by the bottom right",
       forward(),
       [](Problem& p) {
         add_head_vector(p, kAlibiSlopes);
         p.band.align = Align::kBottomRight;
       },
       {1, 4, 64, 125},
       DataType::kF32},
      {"distances of sequences of their own lengths",
       forward(),
       [](Problem& p) {
         add_head_vector(p, kAlibiSlopes), add_ints(p, kSeqLenKv, 2);
         p.band.align = Align::kBottomRight;
       },
       {2, 4, 64, 125},
       DataType::kF32},
      {"a bias of one value a head",
       forward(),
       [](Problem& p) {
         add_matrix(p, kBias, DataType::kF32, {1, 4, 1, 1});
       },
       {1, 4, 1, 125},
       DataType::kF32},
  }));
  INFO(row.why);
  Problem p = row.problem;
  row.change(p);
  REQUIRE(makes_bias(p));
  const Operand own = own_bias(p);
  CHECK(own.extent == row.extent);
  CHECK(own.dtype == row.dtype);
  CHECK(own.stride[3] == 1);
  for (size_t axis = 0; axis < 3; ++axis) CHECK(own.stride[axis] % 8 == 0);
}

TEST_CASE("the bias of a single key has a value a row, as cuDNN misreads one for all rows and keys",
          "[cudnn]") {
  Problem p = forward_problem({2, 4, 2, 64, 1, 64, 64}, DataType::kBf16);
  mask(p, {2, 1, 1, 1});
  REQUIRE(makes_bias(p));
  CHECK(own_bias(p).extent == Extents{2, 1, 64, 1});
  CHECK(own_bias(p).stride == Extents{512, 0, 8, 0});
}

TEST_CASE("what cuDNN reads as it is stays the user's", "[cudnn]") {
  Problem p = forward();
  add_matrix(p, kBias, DataType::kF32, {1, 4, 64, 128});
  CHECK_FALSE(makes_bias(p));
  add_head_vector(p, kAlibiSlopes);
  CHECK_FALSE(makes_bias(p));
  add_matrix(p, kMask, DataType::kBool, {1, 1, 64, 125});
  CHECK(makes_bias(p));
  CHECK_FALSE(puts_slopes_in_bias(p));  // cuDNN adds them to the bias
}

TEST_CASE("a slice has the bias of the whole problem", "[cudnn]") {
  Problem p = forward();
  add_matrix(p, kBias, DataType::kBf16, {2, 4, 64, 128});
  p[kBias].stride[0] += 4;  // the second sequence's rows begin between multiples of 16 bytes
  add_head_vector(p, kAlibiSlopes);
  p[kAlibiSlopes].extent[0] = 2, p[kAlibiSlopes].stride[0] = 4;
  const Problem slice = slice_of(p, {1, 1});
  CHECK(makes_bias(p));
  CHECK(makes_bias(slice));
  CHECK(puts_slopes_in_bias(slice));
  CHECK(own_bias(slice).extent == Extents{1, 2, 64, 125});
}
