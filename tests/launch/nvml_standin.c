/* A stand-in for NVIDIA's management library: GPUs as the environment says them, through the calls of pynvml that
 * node_check.py makes. STANDIN_NVML, or STANDIN_NVML_NODE for the node of that name, is
 * "CLOCK|ECC|REASONS|PENDING|FAILURE|LINKS" for each GPU, with semicolons; ECC -1 is a GPU that counts none, and CLOCK 0
 * one that is lost. STANDIN_NVML_INIT is what the library answers at its start. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INVALID = 2, UNSUPPORTED = 3, LOST = 15 };
struct gpu { unsigned clock, reasons, pending, failure, links; long long ecc; } gpus[16];

static unsigned gpus_of_this_node(void) {
    char name[128];
    const char *node = getenv("SLURMD_NODENAME");
    snprintf(name, sizeof name, "STANDIN_NVML_%s", node ? node : "");
    const char *text = getenv(name) ? getenv(name) : getenv("STANDIN_NVML");
    unsigned count = 0;
    while (text && *text) {
        struct gpu *g = &gpus[count++];
        sscanf(text, "%u|%lld|%u|%u|%u|%u", &g->clock, &g->ecc, &g->reasons, &g->pending, &g->failure, &g->links);
        text = strchr(text, ';');
        text = text ? text + 1 : "";
    }
    return count;
}

static int start(void) { const char *code = getenv("STANDIN_NVML_INIT"); return code ? atoi(code) : 0; }
int nvmlInit_v2(void) { return start(); }
int nvmlInitWithFlags(unsigned flags) { return (void)flags, start(); }
const char *nvmlErrorString(int code) { return code == LOST ? "GPU is lost" : code ? "Driver Not Loaded" : "Success"; }
int nvmlSystemGetDriverVersion(char *out, unsigned length) { return snprintf(out, length, "580.65.06"), 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { return *count = gpus_of_this_node(), 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, struct gpu **out) {
    gpus_of_this_node();
    *out = &gpus[i];
    return gpus[i].clock ? 0 : LOST;
}
int nvmlDeviceGetMaxClockInfo(struct gpu *g, int type, unsigned *out) { return *out = g->clock, type == 1 ? 0 : INVALID; }
int nvmlDeviceGetTotalEccErrors(struct gpu *g, int type, int counter, unsigned long long *out) {
    *out = g->ecc;
    return type != 1 || counter != 0 ? INVALID : g->ecc < 0 ? UNSUPPORTED : 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(struct gpu *g, unsigned long long *out) { return *out = g->reasons, 0; }
int nvmlDeviceGetRemappedRows(struct gpu *g, unsigned *one, unsigned *more, unsigned *pending, unsigned *failure) {
    *one = *more = 0, *pending = g->pending, *failure = g->failure;
    return 0;
}
int nvmlDeviceGetNvLinkState(struct gpu *g, unsigned link, unsigned *out) {
    *out = link < g->links;
    return link < 18 ? 0 : INVALID;
}
