/* Stands in for NVIDIA Pyxis (the container options of srun and sbatch) and for sbatch --segment (Slurm 23.11 and
 * later), so that Debian's Slurm 22.05 takes the scripts that are written for a GPU cluster. No image is unpacked: a
 * task sees SRC at DST for every SRC:DST of --container-mounts, starts in --container-workdir, and finds each option
 * that was asked for in a variable STANDIN_<OPTION>. gcc -shared -fPIC -O2 -o pyxis_standin.so pyxis_standin.c */
#define _GNU_SOURCE
#include <limits.h>
#include <sched.h>
#include <slurm/spank.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

SPANK_PLUGIN(pyxis_standin, 1);

enum { IMAGE, MOUNTS, WORKDIR }; /* the first of OPTIONS */

/* name, what it takes (NULL: a flag), the variable that tells of it */
static struct { char *name, *takes; const char *variable; } OPTIONS[] = {
    {"container-image", "IMAGE", "STANDIN_IMAGE"},
    {"container-mounts", "SRC:DST[,...]", "STANDIN_MOUNTS"},
    {"container-workdir", "PATH", "STANDIN_WORKDIR"},
    {"container-name", "NAME", "STANDIN_NAME"},
    {"container-env", "NAMES", "STANDIN_ENV"},
    {"container-mount-home", NULL, "STANDIN_MOUNT_HOME"},
    {"no-container-mount-home", NULL, "STANDIN_NO_MOUNT_HOME"},
    {"container-remap-root", NULL, "STANDIN_REMAP_ROOT"},
    {"no-container-remap-root", NULL, "STANDIN_NO_REMAP_ROOT"},
    {"container-entrypoint", NULL, "STANDIN_ENTRYPOINT"},
    {"no-container-entrypoint", NULL, "STANDIN_NO_ENTRYPOINT"},
    {"container-writable", NULL, "STANDIN_WRITABLE"},
    {"container-readonly", NULL, "STANDIN_READONLY"},
    {"segment", "NODES", "STANDIN_SEGMENT"},
};
enum { COUNT = sizeof OPTIONS / sizeof *OPTIONS };
static char *given[COUNT];

static int take(int which, const char *value, int remote) {
    (void)remote;
    free(given[which]);
    given[which] = strdup(value && *value ? value : "1");
    return 0;
}

/* Registered here: options that are exported as spank_options[] reach srun and not sbatch. */
int slurm_spank_init(spank_t job, int count, char **words) {
    (void)count; (void)words;
    for (int i = 0; i < COUNT; i++) {
        struct spank_option option = {OPTIONS[i].name, OPTIONS[i].takes, "a stand-in", OPTIONS[i].takes != NULL, i, take};
        if (spank_option_register(job, &option) != ESPANK_SUCCESS) slurm_error("stand-in: no --%s", OPTIONS[i].name);
    }
    return 0;
}

static void make_folders(const char *path) {
    char part[PATH_MAX];
    snprintf(part, sizeof part, "%s", path);
    for (char *s = part + 1; *s; s++)
        if (*s == '/') { *s = 0; mkdir(part, 0755); *s = '/'; }
    mkdir(part, 0755);
}

/* SRC:DST or SRC */
static int bind(char *pair) {
    char *rest = NULL, *source = strtok_r(pair, ":", &rest), *target = strtok_r(NULL, ":", &rest);
    struct stat status;
    if (!target) target = source;
    if (stat(source, &status)) { slurm_error("stand-in: container mount source %s: %m", source); return -1; }
    if (S_ISDIR(status.st_mode)) make_folders(target);
    else if (access(target, F_OK)) { FILE *file = fopen(target, "w"); if (file) fclose(file); }
    if (mount(source, target, NULL, MS_BIND | MS_REC, NULL)) { slurm_error("stand-in: mount on %s: %m", target); return -1; }
    return 0;
}

int slurm_spank_task_init_privileged(spank_t job, int count, char **words) {
    (void)count; (void)words;
    for (int i = 0; i < COUNT; i++)
        if (given[i]) spank_setenv(job, OPTIONS[i].variable, given[i], 1);
    if (!given[IMAGE]) return 0;
    if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL)) {
        slurm_error("stand-in: unshare: %m");
        return -1;
    }
    char *rest = NULL, *list = given[MOUNTS] ? strdup(given[MOUNTS]) : NULL;
    int failed = 0;
    for (char *pair = list ? strtok_r(list, ",", &rest) : NULL; pair && !failed; pair = strtok_r(NULL, ",", &rest))
        failed = bind(pair);
    free(list);
    return failed;
}

int slurm_spank_task_init(spank_t job, int count, char **words) {
    (void)job; (void)count; (void)words;
    if (!given[IMAGE] || !given[WORKDIR] || !chdir(given[WORKDIR])) return 0;
    slurm_error("stand-in: chdir %s: %m", given[WORKDIR]);
    return -1;
}
