// must say: ignoring return
#include <attngraph/attngraph.hpp>

void use(const attngraph::Graph& graph) {
#ifdef FAULT
  graph.validate();
#else
  const attngraph::Status status = graph.validate();
  static_cast<void>(status);
#endif
}
