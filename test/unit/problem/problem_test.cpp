#include "problem/problem.hpp"

#include <vector>

#include "support/catch.hpp"

using namespace attngraph;

TEST_CASE("a problem equals itself and differs when any one field does", "[problem]") {
  using Change = void (*)(Problem&);
  const std::vector<Change> changes = {
      [](Problem& p) { p.pass = Pass::kBackward; },
      [](Problem& p) { p.batch = 9; },
      [](Problem& p) { p.q_heads = 9; },
      [](Problem& p) { p.kv_heads = 9; },
      [](Problem& p) { p.q_len = 9; },
      [](Problem& p) { p.kv_len = 9; },
      [](Problem& p) { p.qk_dim = 9; },
      [](Problem& p) { p.v_dim = 9; },
      [](Problem& p) { p.q_slots = 9; },
      [](Problem& p) { p.kv_slots = 9; },
      [](Problem& p) { p.io = DataType::kBf16; },
      [](Problem& p) { p.scale = 0.5; },
      [](Problem& p) { p.softcap = 0.5; },
      [](Problem& p) { p.dropout_p = 0.5; },
      [](Problem& p) { p.band.align = Align::kBottomRight; },
      [](Problem& p) { p.band.left = 0; },
      [](Problem& p) { p.band.right = 0; },
      [](Problem& p) { p.stats_base = StatsBase::k2; },
      [](Problem& p) { p.deterministic = true; },
  };
  const std::vector<void (*)(Operand&)> operand_changes = {
      [](Operand& t) { t.present = true; },     [](Operand& t) { t.dtype = DataType::kI64; },
      [](Operand& t) { t.extent[0] = 9; },      [](Operand& t) { t.extent[3] = 9; },
      [](Operand& t) { t.stride[0] = 9; },      [](Operand& t) { t.stride[3] = 9; },
      [](Operand& t) { t.alignment = 64; },     [](Operand& t) { t.ragged = true; },
      [](Operand& t) { t.multiplier = 9; },     [](Operand& t) { t.offsets_dtype = DataType::kI64; },
      [](Operand& t) { t.offsets_stride = 9; }, [](Operand& t) { t.offsets_alignment = 64; },
  };
  std::vector<Problem> all = {Problem{}};
  for (const Change change : changes) change(all.emplace_back());
  for (size_t role = 0; role < kNumRoles; ++role)
    for (const auto change : operand_changes) change(all.emplace_back().operands[role]);
  for (size_t i = 0; i < all.size(); ++i)
    for (size_t j = 0; j < all.size(); ++j) REQUIRE((all[i] == all[j]) == (i == j));
}
