// The driver's functions without the runtime: modules of PTX text, two that are linked, launches, errors.
#include "check.h"
#include <cstring>
#include <cuda.h>

#define DRIVER(call)                                                                   \
    do {                                                                               \
        CUresult error_ = (call);                                                      \
        const char *name_ = "?";                                                       \
        if (error_ != CUDA_SUCCESS) {                                                  \
            cuGetErrorName(error_, &name_);                                            \
            std::printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #call, name_);          \
            std::exit(4);                                                              \
        }                                                                              \
    } while (0)

static const char scale[] = R"(.version 8.0
.target sm_80
.address_size 64
.visible .global .u32 offset = 5;
.extern .func (.param .b32 r) twice(.param .b32 x);
.visible .entry scale(.param .u32 n, .param .u64 data)
{
    .reg .pred %p;
    .reg .b32 %n, %i, %v, %o;
    .reg .b64 %d, %at;
    ld.param.u32 %n, [n];
    ld.param.u64 %d, [data];
    mov.u32 %i, %tid.x;
    setp.ge.u32 %p, %i, %n;
    @%p ret;
    mad.wide.u32 %at, %i, 4, %d;
    ld.global.u32 %v, [%at];
    {
        .param .b32 given;
        .param .b32 result;
        st.param.b32 [given], %v;
        call (result), twice, (given);
        ld.param.b32 %v, [result];
    }
    ld.global.u32 %o, [offset];
    add.u32 %v, %v, %o;
    st.global.u32 [%at], %v;
    ret;
}
)";
static const char twice[] = R"(.version 8.0
.target sm_80
.address_size 64
.visible .func (.param .b32 r) twice(.param .b32 x)
{
    .reg .b32 %v;
    ld.param.b32 %v, [x];
    shl.b32 %v, %v, 1;
    st.param.b32 [r], %v;
    ret;
}
)";

static CUmodule linked()
{
    CUlinkState state;
    CUmodule module;
    void *image;
    size_t size;
    DRIVER(cuLinkCreate(0, nullptr, nullptr, &state));
    DRIVER(cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)scale, sizeof scale, "scale", 0, nullptr, nullptr));
    DRIVER(cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)twice, sizeof twice, "twice", 0, nullptr, nullptr));
    DRIVER(cuLinkComplete(state, &image, &size));
    DRIVER(cuModuleLoadData(&module, image));
    DRIVER(cuLinkDestroy(state));
    return module;
}

static void check_pointers(CUdeviceptr data)
{
    CUdeviceptr start;
    size_t size;
    unsigned type;
    DRIVER(cuMemGetAddressRange(&start, &size, data + 8));
    CHECK(start == data && size == 400);
    DRIVER(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, data));
    CHECK(type == CU_MEMORYTYPE_DEVICE);
    CHECK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 4096) == CUDA_ERROR_INVALID_VALUE);
}

int main()
{
    int count, major, value;
    CUdevice device;
    CUcontext context, current;
    CHECK(cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED);
    DRIVER(cuInit(0));
    DRIVER(cuDeviceGetCount(&count));
    DRIVER(cuDeviceGet(&device, 0));
    DRIVER(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
    CHECK(count == 1 && major == 9);
    CUdeviceptr data;
    CHECK(cuMemAlloc(&data, 400) == CUDA_ERROR_INVALID_CONTEXT);
    DRIVER(cuCtxCreate(&context, nullptr, 0, device));
    DRIVER(cuCtxGetCurrent(&current));
    CHECK(current == context);

    CUmodule module = linked();
    CUfunction function;
    DRIVER(cuModuleGetFunction(&function, module, "scale"));
    CHECK(cuModuleGetFunction(&function, module, "none") == CUDA_ERROR_NOT_FOUND);
    DRIVER(cuModuleGetFunction(&function, module, "scale"));
    DRIVER(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function));
    CHECK(value == 1024);
    size_t offset, size;
    DRIVER(cuFuncGetParamInfo(function, 1, &offset, &size));
    CHECK(offset == 8 && size == 8);

    DRIVER(cuMemAlloc(&data, 400));
    DRIVER(cuMemsetD32(data, 3, 100));
    check_pointers(data);
    unsigned n = 100;
    void *arguments[] = {&n, &data};
    DRIVER(cuLaunchKernel(function, 1, 1, 1, 128, 1, 1, 0, nullptr, arguments, nullptr));
    struct {
        unsigned n;
        CUdeviceptr data;
    } packed = {50, data};
    size_t packed_size = sizeof packed;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &packed_size,
                     CU_LAUNCH_PARAM_END};
    CUdeviceptr variable;
    unsigned one = 1;
    DRIVER(cuModuleGetGlobal(&variable, &size, module, "offset"));
    CHECK(size == 4);
    DRIVER(cuMemcpyHtoD(variable, &one, sizeof one));
    DRIVER(cuLaunchKernel(function, 1, 1, 1, 128, 1, 1, 0, nullptr, nullptr, extra));
    DRIVER(cuCtxSynchronize());
    unsigned found[100];
    DRIVER(cuMemcpyDtoH(found, data, sizeof found));
    CHECK(found[0] == 2 * 11 + 1 && found[49] == 23 && found[50] == 11 && found[99] == 11);

    CHECK(cuModuleLoadData(&module, "\177ELF\2\1\1 machine code") == CUDA_ERROR_NO_BINARY_FOR_GPU);
    DRIVER(cuMemFree(data));
    DRIVER(cuCtxDestroy(context));
    puts("driver: right");
    return 0;
}
