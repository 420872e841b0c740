/* A fake libnvidia-ml.so.1 for tests. It does what the text file $FAKE_NVML_STATE says; the file may change at any time.
 *   loaded 1              0: the driver is away; calls answer DRIVER_NOT_LOADED and every handle and initialisation is void
 *   count 2               GPUs
 *   0.gpu 97              0.mem_util 40      0.mem_total 85899345920   0.mem_used 1000   0.mem_reserved 500
 *   0.power_mw 350000     0.temp 71          0.clock.1 1410  (type: 0 graphics, 1 SM, 2 memory, 3 video)
 *   0.reasons 4           0.pcie.0 100       0.ecc.0 3       0.mig 0       0.energy_mj 12345
 *   0.field.83 77         (with a point: a double)           0.fieldret.83 999 (this field's own return code)
 *   0.proc.0.pid 4242     0.proc.0.mem 1048576               0.gpm.2 55.5
 *   0.xid 79              raised once each time  xid_seq  grows
 *   err.FUNCTION 15       0.err.FUNCTION 15  (for one GPU)   sleep_ms.FUNCTION 2000   0.sleep_ms.FUNCTION 2000
 * A key that is not there answers NOT_SUPPORTED. MIG instance i of GPU g is device 100 + 10 g + i.
 * Build: gcc -O1 -shared -fPIC -Wl,-soname,libnvidia-ml.so.1 (-DOLD_DRIVER leaves out what drivers before 535 lack). */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef unsigned long long ull;
typedef struct device { int index; } *device_t;
enum { SUCCESS, UNINITIALIZED, INVALID, NOT_SUPPORTED, NOT_FOUND = 6, TOO_SMALL, NOT_LOADED = 9, TIMED_OUT, VERSION = 25 };
enum { DEVICES = 300, ENTRIES = 4096, TEXT = 96 };

static struct device devices[DEVICES];
static int initialised;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct entry { char key[TEXT], value[TEXT]; } table[ENTRIES];
static int entries, faults;
static struct stat seen;

static int by_key(const void *a, const void *b) { return strcmp(((const struct entry *)a)->key, ((const struct entry *)b)->key); }

static void reload(void) { /* only when the file has changed: tests that measure cost must not measure this */
  const char *path = getenv("FAKE_NVML_STATE");
  struct stat now;
  if (!path || stat(path, &now)) { entries = 0; return; }
  if (now.st_ino == seen.st_ino && now.st_size == seen.st_size && !memcmp(&now.st_mtim, &seen.st_mtim, sizeof now.st_mtim)) return;
  FILE *file = fopen(path, "r");
  if (!file) return;
  char line[2 * TEXT];
  faults = 0;
  for (entries = 0; entries < ENTRIES && fgets(line, sizeof line, file);)
    if (sscanf(line, "%95s %95[^\r\n]", table[entries].key, table[entries].value) == 2) { faults |= strstr(table[entries].key, "err.") || strstr(table[entries].key, "sleep_ms."); entries++; }
  fclose(file);
  qsort(table, entries, sizeof *table, by_key);
  seen = now;
}

static int lookup(const char *key, char *value) {
  struct entry wanted;
  snprintf(wanted.key, TEXT, "%s", key);
  pthread_mutex_lock(&mutex);
  struct entry *hit = bsearch(&wanted, table, entries, sizeof *table, by_key);
  if (hit) strcpy(value, hit->value);
  pthread_mutex_unlock(&mutex);
  return hit != NULL;
}

static int number(const char *key, ull *value) {
  char text[TEXT];
  if (!lookup(key, text)) return 0;
  *value = strtoull(text, NULL, 0);
  return 1;
}

static int loaded(void) { /* the first question of every call */
  ull v = 1;
  pthread_mutex_lock(&mutex); reload(); pthread_mutex_unlock(&mutex);
  number("loaded", &v);
  return v != 0;
}

static int gate(const char *function, device_t device) { /* what goes wrong before the call does anything */
  char key[TEXT]; ull v;
  if (!loaded()) { initialised = 0; return NOT_LOADED; }
  if (!initialised) return UNINITIALIZED;
  if (!faults) return SUCCESS; /* the usual case costs nothing, so that a measurement is of the collector */
  snprintf(key, TEXT, "sleep_ms.%s", function); if (number(key, &v)) usleep(v * 1000);
  snprintf(key, TEXT, "err.%s", function); if (number(key, &v)) return (int)v;
  if (!device) return SUCCESS;
  snprintf(key, TEXT, "%d.sleep_ms.%s", device->index, function); if (number(key, &v)) usleep(v * 1000);
  snprintf(key, TEXT, "%d.err.%s", device->index, function); if (number(key, &v)) return (int)v;
  snprintf(key, TEXT, "%d.err.all", device->index); if (number(key, &v)) return (int)v;
  return SUCCESS;
}
#define GATE(function, device) do { int e_ = gate(function, device); if (e_) return e_; } while (0)

static int of(device_t d, const char *suffix, ull *v) { char k[TEXT]; snprintf(k, TEXT, "%d.%s", d->index, suffix); return number(k, v) ? SUCCESS : NOT_SUPPORTED; }
static int get(device_t d, const char *function, const char *suffix, unsigned *out) { GATE(function, d); ull v; int e = of(d, suffix, &v); if (!e) *out = (unsigned)v; return e; }
static int get_long(device_t d, const char *function, const char *suffix, ull *out) { GATE(function, d); return of(d, suffix, out); }
static int get_text(device_t d, const char *function, const char *suffix, const char *otherwise, char *b, unsigned n) {
  GATE(function, d); char k[TEXT], v[TEXT]; snprintf(k, TEXT, "%d.%s", d->index, suffix);
  if (lookup(k, v)) snprintf(b, n, "%s", v); else snprintf(b, n, otherwise, d->index);
  return SUCCESS; }

int nvmlInitWithFlags(unsigned flags) { (void)flags; ull v; if (!loaded()) return NOT_LOADED; if (number("err.nvmlInit", &v)) return (int)v;
  for (int i = 0; i < DEVICES; i++) devices[i].index = i; initialised++; return SUCCESS; }
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { if (!initialised) return UNINITIALIZED; initialised--; return SUCCESS; }
const char *nvmlErrorString(int r) { return r == 15 ? "GPU is lost" : "Fake NVML error"; }
int nvmlSystemGetDriverVersion(char *b, unsigned n) { GATE("nvmlSystemGetDriverVersion", NULL); snprintf(b, n, "999.00-fake"); return SUCCESS; }
int nvmlDeviceGetCount_v2(unsigned *c) { GATE("nvmlDeviceGetCount", NULL); ull v = 0; number("count", &v); *c = (unsigned)v; return SUCCESS; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, device_t *d) { ull v = 0; GATE("nvmlDeviceGetHandleByIndex", NULL); number("count", &v); if (i >= v || i >= 100) return INVALID;
  GATE("nvmlDeviceGetHandleByIndex", &devices[i]); *d = &devices[i]; return SUCCESS; }
int nvmlDeviceGetName(device_t d, char *b, unsigned n) { return get_text(d, "nvmlDeviceGetName", "name", "Fake GPU %d", b, n); }
int nvmlDeviceGetUUID(device_t d, char *b, unsigned n) { return get_text(d, "nvmlDeviceGetUUID", "uuid", "GPU-00000000-0000-0000-0000-%012d", b, n); }
int nvmlDeviceGetUtilizationRates(device_t d, unsigned u[2]) { GATE("nvmlDeviceGetUtilizationRates", d); ull g, m; if (of(d, "gpu", &g) || of(d, "mem_util", &m)) return NOT_SUPPORTED; u[0] = g; u[1] = m; return SUCCESS; }
int nvmlDeviceGetMemoryInfo(device_t d, ull m[3]) { GATE("nvmlDeviceGetMemoryInfo", d); ull t, u, r = 0; if (of(d, "mem_total", &t) || of(d, "mem_used", &u)) return NOT_SUPPORTED; of(d, "mem_reserved", &r); m[0] = t; m[1] = t - u - r; m[2] = u + r; return SUCCESS; }
int nvmlDeviceGetPowerUsage(device_t d, unsigned *v) { return get(d, "nvmlDeviceGetPowerUsage", "power_mw", v); }
int nvmlDeviceGetEnforcedPowerLimit(device_t d, unsigned *v) { return get(d, "nvmlDeviceGetEnforcedPowerLimit", "power_limit_mw", v); }
int nvmlDeviceGetTemperature(device_t d, int s, unsigned *v) { (void)s; return get(d, "nvmlDeviceGetTemperature", "temp", v); }
int nvmlDeviceGetClockInfo(device_t d, int t, unsigned *v) { char k[32]; snprintf(k, sizeof k, "clock.%d", t); return get(d, "nvmlDeviceGetClockInfo", k, v); }
int nvmlDeviceGetMaxClockInfo(device_t d, int t, unsigned *v) { char k[32]; snprintf(k, sizeof k, "maxclock.%d", t); return get(d, "nvmlDeviceGetMaxClockInfo", k, v); }
int nvmlDeviceGetPerformanceState(device_t d, unsigned *v) { return get(d, "nvmlDeviceGetPerformanceState", "pstate", v); }
int nvmlDeviceGetCurrentClocksThrottleReasons(device_t d, ull *v) { return get_long(d, "nvmlDeviceGetCurrentClocksThrottleReasons", "reasons", v); }
int nvmlDeviceGetPcieThroughput(device_t d, int c, unsigned *v) { char k[32]; snprintf(k, sizeof k, "pcie.%d", c); return get(d, "nvmlDeviceGetPcieThroughput", k, v); }
int nvmlDeviceGetTotalEccErrors(device_t d, int t, int c, ull *v) { (void)c; char k[32]; snprintf(k, sizeof k, "ecc.%d", t); return get_long(d, "nvmlDeviceGetTotalEccErrors", k, v); }
int nvmlDeviceGetTotalEnergyConsumption(device_t d, ull *v) { return get_long(d, "nvmlDeviceGetTotalEnergyConsumption", "energy_mj", v); }
int nvmlDeviceGetMigMode(device_t d, unsigned *c, unsigned *p) { int e = get(d, "nvmlDeviceGetMigMode", "mig", c); *p = *c; return e; }
int nvmlDeviceGetMaxMigDeviceCount(device_t d, unsigned *n) { return get(d, "nvmlDeviceGetMaxMigDeviceCount", "mig_max", n); }
int nvmlDeviceGetMigDeviceHandleByIndex(device_t d, unsigned i, device_t *m) { GATE("nvmlDeviceGetMigDeviceHandleByIndex", d); ull v;
  device_t candidate = &devices[100 + 10 * d->index + i % 10]; if (of(candidate, "mem_total", &v)) return NOT_FOUND; *m = candidate; return SUCCESS; }
struct process { unsigned pid; ull memory; unsigned gpu_instance, compute_instance; };
int nvmlDeviceGetComputeRunningProcesses_v3(device_t d, unsigned *n, struct process *p) {
  GATE("nvmlDeviceGetComputeRunningProcesses", d); unsigned have = 0; ull pid, memory; char k[64];
  for (;; have++) { snprintf(k, sizeof k, "proc.%u.pid", have); if (of(d, k, &pid)) break;
    if (p && have < *n) { snprintf(k, sizeof k, "proc.%u.mem", have); memory = ~0ULL; of(d, k, &memory); p[have] = (struct process){(unsigned)pid, memory, ~0u, ~0u}; } }
  int e = have > *n ? TOO_SMALL : SUCCESS; *n = have; return e; }
struct field { uint32_t id, scope; int64_t at, latency; uint32_t type, ret; union { double d; unsigned u; ull l; } value; };
int nvmlDeviceGetFieldValues(device_t d, int n, struct field *f) { GATE("nvmlDeviceGetFieldValues", d);
  for (int i = 0; i < n; i++) { char k[TEXT], text[TEXT]; ull v; f[i].at = 1; f[i].type = 3; f[i].value.l = 0xDEADBEEFDEADBEEFULL;
    snprintf(k, TEXT, "%d.fieldret.%u", d->index, f[i].id); if (number(k, &v)) { f[i].ret = (uint32_t)v; continue; }
    snprintf(k, TEXT, "%d.field.%u", d->index, f[i].id); if (!lookup(k, text)) { f[i].ret = NOT_SUPPORTED; continue; }
    f[i].ret = SUCCESS; if (strchr(text, '.')) { f[i].type = 0; f[i].value.d = strtod(text, NULL); } else f[i].value.l = strtoull(text, NULL, 0); }
  return SUCCESS; }
struct event { device_t device; ull type, data; unsigned gpu_instance, compute_instance; };
static int event_set, registered[DEVICES];
int nvmlEventSetCreate(void **set) { GATE("nvmlEventSetCreate", NULL); *set = &event_set; return SUCCESS; }
int nvmlDeviceRegisterEvents(device_t d, ull types, void *set) { (void)types; (void)set; GATE("nvmlDeviceRegisterEvents", d); registered[d->index] = 1; return SUCCESS; }
int nvmlEventSetWait_v2(void *set, struct event *event, unsigned timeout_ms) { (void)set; static ull last; ull now = 0, xid;
  for (unsigned waited = 0; waited <= timeout_ms; waited += 250) { GATE("nvmlEventSetWait", NULL); number("xid_seq", &now);
    if (now > last) { last = now; for (int i = 0; i < 100; i++) if (registered[i] && !of(&devices[i], "xid", &xid)) { *event = (struct event){&devices[i], 8, xid, ~0u, ~0u}; return SUCCESS; } }
    if (now < last) last = now; usleep(250000); }
  return TIMED_OUT; }
#ifndef OLD_DRIVER
struct memory2 { unsigned version; ull total, reserved, free, used; };
int nvmlDeviceGetMemoryInfo_v2(device_t d, struct memory2 *m) { GATE("nvmlDeviceGetMemoryInfo", d); if (m->version != 0x02000028) return VERSION; ull t, u, r = 0; if (of(d, "mem_total", &t) || of(d, "mem_used", &u)) return NOT_SUPPORTED; of(d, "mem_reserved", &r); m->total = t; m->used = u; m->reserved = r; m->free = t - u - r; return SUCCESS; }
struct temperature1 { unsigned version; int sensor; int t; };
int nvmlDeviceGetTemperatureV(device_t d, struct temperature1 *p) { if (p->version != 0x100000C) return VERSION; unsigned v = 0; int e = get(d, "nvmlDeviceGetTemperatureV", "temp", &v); p->t = (int)v; return e; }
int nvmlDeviceGetCurrentClocksEventReasons(device_t d, ull *v) { return get_long(d, "nvmlDeviceGetCurrentClocksEventReasons", "reasons", v); }
struct support { unsigned version, supported; };
struct metric { unsigned id; int ret; double value; const char *names[3]; };
struct metrics { unsigned version, count; device_t *sample1, *sample2; struct metric metrics[]; };
int nvmlGpmQueryDeviceSupport(device_t d, struct support *s) { GATE("nvmlGpmQueryDeviceSupport", d); ull v = 0; of(d, "gpm", &v); s->supported = v != 0; return SUCCESS; }
int nvmlGpmSampleAlloc(device_t **s) { GATE("nvmlGpmSampleAlloc", NULL); *s = calloc(1, sizeof **s); return SUCCESS; }
int nvmlGpmSampleFree(device_t *s) { free(s); return SUCCESS; }
int nvmlGpmSampleGet(device_t d, device_t *s) { GATE("nvmlGpmSampleGet", d); *s = d; return SUCCESS; }
int nvmlGpmMetricsGet(struct metrics *m) { if (m->version != 1 || !*m->sample1 || *m->sample1 != *m->sample2) return INVALID; GATE("nvmlGpmMetricsGet", *m->sample2);
  for (unsigned i = 0; i < m->count; i++) { char k[TEXT], text[TEXT]; snprintf(k, TEXT, "%d.gpm.%u", (*m->sample2)->index, m->metrics[i].id);
    m->metrics[i].ret = lookup(k, text) ? SUCCESS : NOT_SUPPORTED; m->metrics[i].value = m->metrics[i].ret ? -7.7e77 : strtod(text, NULL); }
  return SUCCESS; }
#endif
