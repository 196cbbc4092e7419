# cython: cdivision=True
"""The guard of an object: it is set up before it is used, once, and has one user at a time.

A guard is one field of the object, all zero at first. 0 means free, 1 means in use. Higher bits mean that levels of the
class hierarchy are still to be set up. A subclass in Python may forget ``super().__init__()``, and code of the user
(a callback, ``__array__``, ``__float__``, another thread) may call the object again while it works: both get a
RuntimeError in place of memory that is not theirs.

Every use goes the same way: convert what the user gave, `guard_enter`, check against the state, change the state,
`guard_leave` in ``finally``. What was read from the state before `guard_enter` is not valid after it.
"""

cdef extern from *:
    """
    #ifndef FASTRACE_GUARD
    #define FASTRACE_GUARD
    #if defined(__GNUC__) || defined(__clang__)
      typedef int fr_guard_t;
      static inline int fr_guard_take(fr_guard_t *guard) {
          int is_free = 0;
          return __atomic_compare_exchange_n(guard, &is_free, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
      }
      static inline void fr_guard_leave(fr_guard_t *guard) { __atomic_store_n(guard, 0, __ATOMIC_RELEASE); }
      static inline int fr_guard_state(const fr_guard_t *guard) { return __atomic_load_n(guard, __ATOMIC_RELAXED); }
    #elif defined(_MSC_VER)
      #include <intrin.h>
      typedef long fr_guard_t;
      static __inline int fr_guard_take(fr_guard_t *guard) { return _InterlockedCompareExchange(guard, 1, 0) == 0; }
      static __inline void fr_guard_leave(fr_guard_t *guard) { _InterlockedExchange(guard, 0); }
      static __inline int fr_guard_state(const fr_guard_t *guard) { return (int)*(const volatile long *)guard; }
    #else
      #include <stdatomic.h>
      typedef _Atomic int fr_guard_t;
      static inline int fr_guard_take(fr_guard_t *guard) {
          int is_free = 0;
          return atomic_compare_exchange_strong(guard, &is_free, 1);
      }
      static inline void fr_guard_leave(fr_guard_t *guard) { atomic_store(guard, 0); }
      static inline int fr_guard_state(const fr_guard_t *guard) { return atomic_load((fr_guard_t *)guard); }
    #endif
    /* With one interpreter lock, code that holds it from the first to the last line needs no exchange, only a look. */
    #ifdef Py_GIL_DISABLED
      #define fr_guard_take_briefly(guard) fr_guard_take(guard)
      #define fr_guard_leave_brief(guard) fr_guard_leave(guard)
    #else
      #define fr_guard_take_briefly(guard) (fr_guard_state(guard) == 0)
      #define fr_guard_leave_brief(guard) ((void)0)
    #endif
    #endif
    """
    ctypedef int guard_t "fr_guard_t"
    bint guard_take "fr_guard_take"(guard_t *guard) noexcept nogil
    void guard_leave "fr_guard_leave"(guard_t *guard) noexcept nogil
    int guard_state "fr_guard_state"(const guard_t *guard) noexcept nogil
    bint guard_take_briefly "fr_guard_take_briefly"(guard_t *guard) noexcept nogil
    void guard_leave_brief "fr_guard_leave_brief"(guard_t *guard) noexcept nogil


# Set up. Each class of a hierarchy that has fields of its own takes a level: 0 at the root, then 1, 2.

cdef inline void guard_await(guard_t *guard, int level) noexcept nogil:
    """In ``__cinit__``: the object may not be used before ``__init__`` of this level is done."""
    guard[0] |= <guard_t>(2 << level)


cdef inline str guarded_name(object owner):
    """What users call the object: a part inside another says so in `_public_name`."""
    return getattr(type(owner), "_public_name", type(owner).__name__)


cdef inline int guard_build(guard_t *guard, int level, object owner) except -1:
    """In ``__init__``, when all arguments have been converted and before the first field is set."""
    if not guard_state(guard) & (2 << level):
        raise TypeError(f"this {guarded_name(owner)} is in use: __init__ runs once; make a new one to start again")
    return 0


cdef inline void guard_built(guard_t *guard, int level) noexcept nogil:
    """In ``__init__``, when the last field has been set."""
    guard[0] &= ~<guard_t>(2 << level)


# Use.

cdef inline int guard_refuse(const guard_t *guard, object owner) except -1:
    """Why an object cannot be used now."""
    name = guarded_name(owner)
    if guard_state(guard) & ~1:
        raise RuntimeError(f"this {name} was never set up: a subclass must call super().__init__(...) in its __init__ "
                           f"before the object is used")
    raise RuntimeError(f"this {name} is in use, in another thread or in a call around this one; give each thread and "
                       f"each callback its own")


cdef inline int guard_enter(guard_t *guard, object owner) except -1:
    """Take the guard, or raise RuntimeError. Take it after the user's code has run; `guard_leave` in ``finally``."""
    if not guard_take(guard):
        guard_refuse(guard, owner)
    return 0


cdef inline object guarded(guard_t *guard, object owner, object method, tuple args):
    """What `method` returns, called while nobody else uses the object. A hot scalar path takes the guard itself."""
    guard_enter(guard, owner)
    try:
        return method(*args)
    finally:
        guard_leave(guard)


cdef inline int guard_check(const guard_t *guard, object owner) except -1:
    """Raise RuntimeError unless the object is set up and free: for reads that call no Python and keep the GIL."""
    if guard_state(guard) != 0:
        guard_refuse(guard, owner)
    return 0


cdef inline int guard_check_idle(const guard_t *guard, object owner) except -1:
    """Raise RuntimeError if the object is in use; it may lack a part of its set-up."""
    if guard_state(guard) & 1:
        guard_refuse(guard, owner)
    return 0


cdef inline int guard_check_built(const guard_t *guard, object owner) except -1:
    """Raise RuntimeError unless the object is set up; it may be in use."""
    if guard_state(guard) & ~1:
        guard_refuse(guard, owner)
    return 0


# `guard_take_briefly` and `guard_leave_brief` are for a few lines of a hot path, such as one scalar update: lines that
# hold the GIL from first to last, and call no Python. Where the GIL exists they cost one comparison. They are right
# only if nobody takes the same guard without holding the GIL.
