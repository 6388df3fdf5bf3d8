// must say: no known conversion|no matching function|could not convert|cannot convert
#include <attngraph/attngraph.hpp>

attngraph::Uid use(const attngraph::Graph& graph) { return graph.fresh_uid(); }

attngraph::Uid use(const std::string& text) {
#ifdef FAULT
  return use(attngraph::parse(text));
#else
  const attngraph::Result<attngraph::Graph> graph = attngraph::parse(text);
  return graph ? use(*graph) : 0;
#endif
}
