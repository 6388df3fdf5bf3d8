#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "attngraph/compat/frontend.hpp"
#include "graph/role.hpp"

/// What the names and numbers of cudnn-frontend mean, for graphs in memory and for its JSON.
namespace attngraph::compat {

/// The role of a port by their name; none where it has no counterpart.
std::optional<Role> role_of(std::string_view port);

/// Attributes without dropout and score modifiers: their left bound counts the row's own key, a scale that
/// is not set is 1.
SdpaAttributes attributes_of(const FrontendAttributes& theirs);

/// Takes the axes of extent 1 away that their sinks [1, heads, 1, 1] and page tables [batch, 1, columns, 1]
/// have beside ours.
void drop_unit_axes(Role role, Tensor& tensor);

/// The slopes that cudnn-frontend computes for so many query heads: 2^(-8 (h + 1) / n) for the largest power
/// of two n, then those of 2n heads between them.
std::vector<float> alibi_slopes(int64_t heads);

}  // namespace attngraph::compat
