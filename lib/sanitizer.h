/* SPDX-License-Identifier: MIT */
/* sanitizer: whether this is built with one. GCC says so by a macro, clang when it is asked. */
#ifndef PINION_LIB_SANITIZER_H
#define PINION_LIB_SANITIZER_H

#if defined(__has_feature)
#define SANITIZER_HAS_FEATURE(name) __has_feature(name)
#else
#define SANITIZER_HAS_FEATURE(name) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || SANITIZER_HAS_FEATURE(address_sanitizer)
#define ADDRESS_SANITIZED 1
#else
#define ADDRESS_SANITIZED 0
#endif

#if defined(__SANITIZE_THREAD__) || SANITIZER_HAS_FEATURE(thread_sanitizer)
#define THREAD_SANITIZED 1
#else
#define THREAD_SANITIZED 0
#endif

#endif
