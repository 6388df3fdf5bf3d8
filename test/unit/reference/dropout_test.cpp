#include <random>

#include "engine/reference/dropout_draw.hpp"
#include "problem/dropout_parts.hpp"
#include "support/catch.hpp"

using namespace attngraph;

TEST_CASE("Philox gives the known answers of Random123", "[reference][dropout]") {
  // Source: Random123 1.14, tests/kat_vectors, philox4x32 with 10 rounds.
  using Words = std::array<uint32_t, 4>;
  const uint32_t ones = 0xFFFFFFFF;
  CHECK(reference::philox({0, 0, 0, 0}, 0, 0) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(reference::philox({ones, ones, ones, ones}, ones, ones) ==
        Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(reference::philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0) ==
        Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("the reference draws the dropout of the other engines", "[reference][dropout]") {
  std::mt19937_64 random(1);
  int kept = 0;
  constexpr int kTrials = 20000;
  for (int trial = 0; trial < kTrials; ++trial) {
    Problem problem;
    problem.q_heads = 1 + static_cast<int64_t>(random() % 64);
    problem.dropout_p = static_cast<double>(1 + random() % 999) / 1000;
    for (const Role role : {Role::kDropoutSeed, Role::kDropoutOffset}) {
      problem[role].present = true;
      problem[role].dtype = DataType::kI64;
    }
    std::array<uint64_t, 2> data = {random(), random()};
    Buffers buffers;
    buffers.data[static_cast<size_t>(Role::kDropoutSeed)] = reinterpret_cast<std::byte*>(&data[0]);
    buffers.data[static_cast<size_t>(Role::kDropoutOffset)] = reinterpret_cast<std::byte*>(&data[1]);
    const reference::DropoutDraw draw(problem, buffers);
    const Dropout shared{data[0], data[1], Dropout::threshold_of(problem.dropout_p)};

    const auto small = [&](uint64_t bound) { return static_cast<int64_t>(random() % bound); };
    const int64_t batch = small(1000), head = small(static_cast<uint64_t>(problem.q_heads));
    const int64_t row = small(trial % 2 == 0 ? 64 : uint64_t{1} << 34), key = small(uint64_t{1} << 35);
    const bool keeps = shared.keeps(batch * problem.q_heads + head, row, key);
    INFO("trial " << trial);
    REQUIRE(draw.factor(batch, {head, row, key}) == (keeps ? 1.0 / (1.0 - problem.dropout_p) : 0.0));
    kept += keeps;
  }
  CHECK(std::abs(kept - kTrials / 2) < 500);  // seven standard deviations of a mean of p over (0, 1)
}

TEST_CASE("a draw in parts gives the words of the whole", "[reference][dropout]") {
  std::mt19937_64 random(2);
  for (int trial = 0; trial < 20000; ++trial) {
    const uint64_t seed = random(), offset = random();
    const auto head = static_cast<int64_t>(random() >> 32), row = static_cast<int64_t>(random() >> 24),
               key = static_cast<int64_t>(random() >> 24);
    const HeadDraws<> draws(Dropout{seed, offset, 1}, head);
    PhiloxWords words = HeadDraws<>::meet(draws.row(row), draws.keys(key));
    PhiloxKey next = draws.next();
    for (int round = 0; round < HeadDraws<>::kRoundsLeft; ++round, next = next_key(next))
      philox_round(words, next);
    const auto low = static_cast<uint32_t>(key >> 1), query = static_cast<uint32_t>(row & ~int64_t{8});
    INFO("trial " << trial);
    REQUIRE(words ==
            reference::philox({low, query, static_cast<uint32_t>(head), static_cast<uint32_t>(offset)},
                              static_cast<uint32_t>(seed),
                              static_cast<uint32_t>(seed >> 32) ^ static_cast<uint32_t>(offset >> 32)));
  }
}
