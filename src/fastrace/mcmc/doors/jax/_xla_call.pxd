# cython: cdivision=True
"""What XLA hands to a compiled function that it calls, and gets back: the leading fields of its structs.

The interface is plain C (xla/ffi/api/c_api.h, major version 0). Each struct says its size; fields are only ever added
at the end, under a new minor version, so the ones below stay where they are. No header of XLA is needed to build.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport strlen

from fastrace._draws._row_stream cimport row_stream_init, row_stream_seed, row_stream_t

cdef enum:
    XLA_METADATA = 1            # an extension: XLA asks what the function is
    XLA_EXECUTE = 3             # a stage of execution
    XLA_BUFFER = 1              # a kind of argument and of result
    XLA_ARRAY = 1               # kinds of attribute
    XLA_SCALAR = 3
    XLA_INVALID_ARGUMENT = 3    # an error code

cdef enum:                      # element types
    XLA_S32 = 4
    XLA_S64 = 5
    XLA_U32 = 8
    XLA_F32 = 11
    XLA_F64 = 12

cdef struct xla_extension_t:
    size_t struct_size
    int kind
    xla_extension_t *next

cdef struct xla_version_t:
    size_t struct_size
    xla_extension_t *extension
    int major
    int minor

cdef struct xla_metadata_t:     # to be filled in
    size_t struct_size
    xla_version_t version
    uint32_t traits

cdef struct xla_ask_t:          # the extension that asks
    xla_extension_t base
    xla_metadata_t *metadata

cdef struct xla_error_t:        # as it is to be created
    size_t struct_size
    xla_extension_t *extension
    const char *message
    int code

ctypedef void *(*xla_create_error_t)(xla_error_t *) noexcept nogil

cdef struct xla_api_t:
    size_t struct_size
    xla_extension_t *extension
    xla_version_t version
    void *internal
    xla_create_error_t create_error

cdef struct xla_buffer_t:
    size_t struct_size
    xla_extension_t *extension
    int dtype
    void *data
    int64_t rank
    int64_t *dims

cdef struct xla_array_t:        # an attribute
    int dtype
    size_t size
    void *data

cdef struct xla_scalar_t:       # an attribute
    int dtype
    void *value

cdef struct xla_buffers_t:      # arguments, or results
    size_t struct_size
    xla_extension_t *extension
    int64_t size
    int *kinds
    xla_buffer_t **at

cdef struct xla_attributes_t:   # sorted by name
    size_t struct_size
    xla_extension_t *extension
    int64_t size
    int *kinds
    void **names
    void **at

cdef struct xla_frame_t:
    size_t struct_size
    xla_extension_t *extension
    const xla_api_t *api
    void *context
    int stage
    xla_buffers_t arguments
    xla_buffers_t results
    xla_attributes_t attributes


cdef inline void *xla_refuse(const xla_frame_t *frame, const char *message) noexcept nogil:
    """An error for XLA to raise; it copies the message."""
    cdef xla_error_t error
    error.struct_size = sizeof(xla_error_t)
    error.extension = NULL
    error.message = message
    error.code = XLA_INVALID_ARGUMENT
    return frame.api.create_error(&error)


cdef inline bint xla_is_real(const xla_buffer_t *buffer) noexcept nogil:
    return buffer.dtype == XLA_F32 or buffer.dtype == XLA_F64


cdef inline bint xla_has_kind(const xla_buffer_t *buffer, char kind) noexcept nogil:
    """Whether it holds words (u), int32 (i), or numbers of either precision (r)."""
    if kind == b"r":
        return xla_is_real(buffer)
    return buffer.dtype == (XLA_U32 if kind == b"u" else XLA_S32)


cdef inline const char *xla_misfit(const xla_frame_t *frame, const char *arguments, const char *results,
                                   int64_t n_attributes) noexcept nogil:
    """NULL if the call has the expected form, else what is wrong with it. Strings have one letter for each kind."""
    cdef int64_t i
    if frame.struct_size < sizeof(xla_frame_t):
        return b"this XLA is too old: its call frame lacks fields that fastrace needs"
    if frame.stage != XLA_EXECUTE:
        return b"fastrace's functions are for execution only"
    if (frame.arguments.size != <int64_t>strlen(arguments) or frame.results.size != <int64_t>strlen(results)
            or frame.attributes.size != n_attributes):
        return b"a function of fastrace was called with the wrong number of arguments, results or attributes"
    for i in range(frame.arguments.size):
        if not xla_has_kind(frame.arguments.at[i], arguments[i]):
            return b"a function of fastrace was called with arguments of the wrong types"
    for i in range(frame.results.size):
        if not xla_has_kind(frame.results.at[i], results[i]):
            return b"a function of fastrace was called for results of the wrong types"
    return NULL


cdef inline bint xla_ready(const xla_frame_t *frame, const int *version, const char *arguments, const char *results,
                           int64_t n_attributes, void **answer) noexcept nogil:
    """Whether a function should go on; if not, `answer` is for XLA, which may only ask what the function is."""
    cdef xla_metadata_t *metadata
    cdef const char *wrong
    answer[0] = NULL
    if frame.extension != NULL and frame.extension.kind == XLA_METADATA:
        metadata = (<xla_ask_t *>frame.extension).metadata
        metadata.version.struct_size = sizeof(xla_version_t)
        metadata.version.extension = NULL
        metadata.version.major = version[0]
        metadata.version.minor = version[1]
        metadata.traits = 0
        return False
    wrong = xla_misfit(frame, arguments, results, n_attributes)
    if wrong != NULL:
        answer[0] = xla_refuse(frame, wrong)
    return wrong == NULL


cdef inline int64_t xla_batch(const xla_buffer_t *buffer, int64_t inner) noexcept nogil:
    """How many calls in one, from the leading dimensions before the `inner` last ones."""
    cdef int64_t n = 1, i
    for i in range(buffer.rank - inner):
        n *= buffer.dims[i]
    return n


cdef inline int64_t xla_last(const xla_buffer_t *buffer, int64_t back) noexcept nogil:
    """A dimension, counted from the last one, 1."""
    return buffer.dims[buffer.rank - back]


cdef inline double xla_real(const xla_buffer_t *buffer, int64_t i) noexcept nogil:
    if buffer.dtype == XLA_F32:
        return <double>(<const float *>buffer.data)[i]
    return (<const double *>buffer.data)[i]


cdef inline void xla_put_real(const xla_buffer_t *buffer, int64_t i, double value) noexcept nogil:
    if buffer.dtype == XLA_F32:
        (<float *>buffer.data)[i] = <float>value
    else:
        (<double *>buffer.data)[i] = value


cdef inline void key_seed(row_stream_t *stream, const uint32_t *key, int64_t n, uint64_t purpose) noexcept nogil:
    """A stream from the words of a JAX key; another stream for another purpose."""
    cdef uint64_t z = purpose
    cdef int64_t i
    row_stream_init(stream)
    for i in range(n):
        z = (z ^ key[i]) + <uint64_t>0x9E3779B97F4A7C15
        z = (z ^ (z >> 30)) * <uint64_t>0xBF58476D1CE4E5B9
        z = (z ^ (z >> 27)) * <uint64_t>0x94D049BB133111EB
        z ^= z >> 31
    row_stream_seed(stream, z)
