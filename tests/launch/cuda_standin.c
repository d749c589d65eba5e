/* A stand-in for CUDA's driver library: GPUs as the environment says them, through the calls of cuda.h that
 * head_check.py and numa.py make. STANDIN_GPUS is "NAME|MAJOR|MINOR|BYTES" for each, with semicolons; STANDIN_PCI their
 * PCI addresses of 12 characters; STANDIN_INIT is what cuInit returns. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int find(int number, char *name, int *major, int *minor, size_t *bytes) {
    const char *text = getenv("STANDIN_GPUS");
    for (int at = 0; text && *text; at++) {
        if (at == number)
            return sscanf(text, "%255[^|]|%d|%d|%zu", name, major, minor, bytes) == 4 ? 0 : 1;
        text = strchr(text, ';');
        text = text ? text + 1 : "";
    }
    return 101;
}

int cuInit(unsigned flags) {
    const char *code = getenv("STANDIN_INIT");
    return code ? atoi(code) : (int)flags;
}

int cuDeviceGetCount(int *count) {
    const char *text = getenv("STANDIN_GPUS");
    *count = text && *text ? 1 : 0;
    for (; text && *text; text++)
        *count += *text == ';';
    return 0;
}

int cuDeviceGet(int *device, int number) {
    *device = number;
    return 0;
}

int cuDeviceGetName(char *out, int length, int device) {
    char name[256];
    int major, minor;
    size_t bytes;
    int code = find(device, name, &major, &minor, &bytes);
    snprintf(out, length, "%s", name);
    return code;
}

int cuDeviceTotalMem_v2(size_t *bytes, int device) {
    char name[256];
    int major, minor;
    return find(device, name, &major, &minor, bytes);
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
    char name[256];
    int major, minor;
    size_t bytes;
    int code = find(device, name, &major, &minor, &bytes);
    *value = attribute == 75 ? major : attribute == 76 ? minor : 0;
    return code;
}

int cuDeviceGetPCIBusId(char *out, int length, int device) {
    const char *text = getenv("STANDIN_PCI");
    if (!text || strlen(text) < 13 * (size_t)device + 12)
        return 101;
    snprintf(out, length, "%.12s", text + 13 * device);
    return 0;
}

int cuGetErrorName(int code, const char **text) {
    *text = code == 802 ? "CUDA_ERROR_SYSTEM_NOT_READY" : "CUDA_ERROR_UNKNOWN";
    return 0;
}
