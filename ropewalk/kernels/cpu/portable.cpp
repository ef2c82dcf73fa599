// What a new toolchain would take from a new glibc or libstdc++, defined here, so that the library
// runs wherever PyTorch does (glibc 2.28) although it was built on a newer system.
#include <sstream>

#if defined(__GLIBC__) && __has_include(<sys/single_threaded.h>)
#include <sys/single_threaded.h>
// std::shared_ptr asks it whether it may count without atomics: it may not. Since glibc 2.32.
char __libc_single_threaded = 0;
#endif

#if defined(__GLIBCXX__)
// Their default constructors are in the library only since GCC 9.
template class std::basic_ostringstream<char>;
template class std::basic_stringstream<char>;
#endif
