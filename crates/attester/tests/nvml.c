/* NVML's confidential-computing calls over the bytes of a SIMULATED GPU, for tests. The layouts
   are written anew from NVIDIA's documentation, so that both sides cannot share one mistake. */

#include <stdio.h>
#include <string.h>

#ifndef INIT
#define INIT 0
#endif
#ifndef HANDLE
#define HANDLE 0
#endif
#ifndef REPORT
#define REPORT 0
#endif
#ifndef CERTIFICATE
#define CERTIFICATE 0
#endif
#ifndef FEATURE
#define FEATURE 1
#endif
#ifndef READY
#define READY 1
#endif

typedef struct { unsigned int environment, ccFeature, devToolsMode; } state_t;

typedef struct {
    unsigned int certChainSize, attestationCertChainSize;
    unsigned char certChain[0x1000], attestationCertChain[0x1400];
} certificate_t;

typedef struct {
    unsigned int isCecAttestationReportPresent, attestationReportSize, cecAttestationReportSize;
    unsigned char nonce[0x20], attestationReport[0x2000], cecAttestationReport[0x1000];
} report_t;

static int initialised;
static int gpu;

static unsigned int read_file(const char *path, unsigned char *to, size_t most) {
    FILE *file = fopen(path, "rb");
    if (!file) return 0;
    size_t bytes = fread(to, 1, most, file);
    fclose(file);
    return (unsigned int)bytes;
}

int nvmlInit_v2(void) {
    if (INIT == 0) initialised++;
    return INIT;
}

int nvmlShutdown(void) {
    initialised--;
    return 0;
}

int nvmlDeviceGetCount_v2(unsigned int *count) {
    *count = 1;
    return initialised > 0 ? 0 : 1;
}

int nvmlSystemGetConfComputeState(state_t *state) {
    state->environment = 2;
    state->ccFeature = FEATURE;
    state->devToolsMode = 0;
    return initialised > 0 ? 0 : 1;
}

int nvmlSystemGetConfComputeGpusReadyState(unsigned int *ready) {
    *ready = READY;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **device) {
    if (index != 0) return 2;
    *device = &gpu;
    return HANDLE;
}

int nvmlDeviceGetConfComputeGpuCertificate(void *device, certificate_t *out) {
    if (device != &gpu) return 2;
    out->attestationCertChainSize =
        read_file(FOLDER "/chain.pem", out->attestationCertChain, sizeof out->attestationCertChain);
    return CERTIFICATE;
}

#ifndef OLD
int nvmlDeviceGetConfComputeGpuAttestationReport(void *device, report_t *out) {
    static const unsigned char zero[0x20];
    if (device != &gpu || !memcmp(out->nonce, zero, sizeof zero)) return 2;
    out->attestationReportSize =
        read_file(FOLDER "/report.bin", out->attestationReport, sizeof out->attestationReport);
#ifdef REPORT_BYTES
    out->attestationReportSize = REPORT_BYTES;
#endif
    return REPORT;
}
#endif
