#include "capi/boundary.hpp"

#include "capi/values.hpp"

namespace attngraph::capi {
namespace {

/// Bytes of the longest prefix within `most` that ends between two characters.
size_t whole_characters(std::string_view text, size_t most) {
  if (text.size() <= most) return text.size();
  const auto continues = [&](size_t i) { return (static_cast<unsigned char>(text[i]) & 0xC0u) == 0x80u; };
  while (most > 0 && continues(most)) --most;
  return most;
}

}  // namespace

void put(attngraph_text* text, std::string_view value) noexcept {
  if (text == nullptr) return;
  text->length = value.size();
  if (text->data == nullptr || text->capacity == 0) return;
  const size_t count = whole_characters(value, text->capacity - 1);
  if (count > 0) std::memcpy(text->data, value.data(), count);
  text->data[count] = '\0';
}

attngraph_status to_c(Code code) noexcept { return c_value(code); }

}  // namespace attngraph::capi

uint32_t attngraph_abi_version(void) { return ATTNGRAPH_ABI_VERSION; }
const char* attngraph_version(void) { return ATTNGRAPH_VERSION; }

const char* attngraph_status_name(attngraph_status status) {
  const auto code = attngraph::capi::value_of_c<attngraph::Code>(status);
  return code ? attngraph::name_of(*code).data() : "?";
}
