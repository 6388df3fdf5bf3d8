// must say: ignoring return
#include <attngraph/attngraph.hpp>

void use(const attngraph::Plan& plan, const attngraph::Bindings& bindings, attngraph::Workspace workspace) {
#ifdef FAULT
  execute(plan, bindings, workspace);
#else
  if (!execute(plan, bindings, workspace).ok()) return;
#endif
}
