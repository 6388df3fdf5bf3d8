// must say: deleted
#include <attngraph/attngraph.hpp>

#ifdef FAULT
void use(attngraph::Context& context) { attngraph::Context copy = context; }
#else
void use(attngraph::Context& context) { context.engines(); }
#endif
