#ifndef ATTNGRAPH_EXPORT_H_
#define ATTNGRAPH_EXPORT_H_

/* Marks what a shared build exports, in C and in C++; everything else is hidden. */
#if defined(__GNUC__) && !defined(_WIN32)
#define ATTNGRAPH_API __attribute__((visibility("default")))
#elif !defined(ATTNGRAPH_SHARED) || !defined(_WIN32)
#define ATTNGRAPH_API
#elif defined(ATTNGRAPH_BUILDING)
#define ATTNGRAPH_API __declspec(dllexport)
#else
#define ATTNGRAPH_API __declspec(dllimport)
#endif

#endif /* ATTNGRAPH_EXPORT_H_ */
