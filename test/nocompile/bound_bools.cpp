// must say: deleted
#include <attngraph/attngraph.hpp>
#include <vector>

// std::vector<bool> has no storage to point at.
#ifdef FAULT
attngraph::Binding use(std::vector<bool>& mask) { return {1, mask}; }
#else
attngraph::Binding use(std::vector<char>& mask) { return {1, mask}; }
#endif
