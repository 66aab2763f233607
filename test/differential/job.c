/* job.c - see job.h. */
#include "differential/job.h"

#include "coll/collective.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- how it runs ----------------------------------------------------------------------------------------
 */

static void set(struct job *job, const char *key, const char *value)
{
    job->settings[job->setting_count++] = key;
    job->settings[job->setting_count++] = value;
}

static const char *draw_algorithm(uint64_t *state)
{
    int row = (int)random_below(state, 2 * algorithm_count);
    return row < algorithm_count && algorithm_does(row, HVD_ALLREDUCE, HVD_SUM) ? algorithm_table[row]->name
                                                                                : "auto";
}

/* One of the words, which end with NULL. */
static const char *draw_word(uint64_t *state, const char *const *words)
{
    int count = 0;
    while (words[count])
        count++;
    return words[random_below(state, count)];
}
#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void draw_settings(struct job *job, uint64_t *state)
{
    set(job, "shm_ring_bytes", draw_word(state, WORDS("4096", "65536", "2097152")));
    set(job, "ring_piece_bytes", draw_word(state, WORDS("4096", "524288")));
    set(job, "latency_threshold", draw_word(state, WORDS("0", "16384", "1000000")));
    set(job, "fusion_threshold", draw_word(state, WORDS("0", "5000", "134217728")));
    set(job, "disable_group_fusion", draw_word(state, WORDS("0", "0", "1")));
    set(job, "eager_threshold", draw_word(state, WORDS("0", "100", "4096", "65536")));
    set(job, "cache_capacity", draw_word(state, WORDS("0", "5", "1024")));
    set(job, "cycle_time_ms", draw_word(state, WORDS("0", "0", "0.3")));
    set(job, "shm_path", draw_word(state, WORDS("auto", "ring", "nontemporal", "direct")));
    set(job, "hierarchical_allreduce", draw_word(state, WORDS("0", "1", "1")));
    set(job, "hierarchical_allgather", draw_word(state, WORDS("0", "1", "1")));
    set(job, "tree_fanout", draw_word(state, WORDS("2", "16")));
    set(job, "sockets_per_peer", draw_word(state, WORDS("0", "1", "3")));
    set(job, "join", job->layout.join_all ? "all" : "reduce");
    set(job, "deterministic", job->layout.deterministic ? "1" : "0");
    set(job, "allreduce_algorithm", job->layout.deterministic ? "auto" : draw_algorithm(state));
}

/* Memory is shared by the ranks of one host, so several hosts need another transport. */
static void draw_hosts(struct job *job, uint64_t *state)
{
    static const char *const names[] = {"a", "b", "c", "d"};
    bool one_host = strstr(job->transport, "shm") || job->wishes.mpi;
    int labels[RANKS] = {0}, hosts = one_host ? 1 : 1 + (int)random_below(state, 4);
    for (int rank = 0; rank < job->layout.size; rank++) {
        labels[rank] = (int)random_below(state, hosts);
        job->layout.hosts[rank] = hosts > 1 ? names[labels[rank]] : NULL;
    }
    CHECK_OK(topology_init(&job->topology, labels, job->layout.size, &check_status));
    job->layout.topology = &job->topology;
}

static void draw_layout(struct job *job, uint64_t *state)
{
    const struct wishes *wishes = &job->wishes;
    struct layout *layout = &job->layout;
    int size = 1 + (int)random_below(state, random_chance(state, 60) ? 4 : RANKS);
    layout->size = wishes->ranks ? wishes->ranks : size;
    layout->mpi = wishes->mpi;
    layout->join_all = random_chance(state, 50);
    layout->deterministic = random_chance(state, 15);
    const char *drawn =
        draw_word(state, WORDS("shm", "tcp", "tcp", "auto", "auto", "faulty-shm", "faulty-tcp"));
    job->transport = wishes->mpi ? "auto" : wishes->transport ? wishes->transport : drawn;
    draw_hosts(job, state);
    draw_settings(job, state);
    if (strstr(job->transport, "tcp") && random_chance(state, 25))
        set(job, "encryption", "1");
}

void job_draw(struct job *job, const struct wishes *wishes)
{
    uint64_t state = random_mix(wishes->seed) + (uint64_t)wishes->job * 2654435761;
    *job = (struct job){.wishes = *wishes};
    draw_layout(job, &state);
    job->phase_count = 4 + (int)random_below(&state, PHASES - 3);
    for (int i = 0; i < job->phase_count; i++)
        phase_draw(&job->phases[i], i ? &job->phases[i - 1] : NULL, &job->layout, &state, &job->step_count);
    for (int i = 0; i < job->step_count; i++)
        job->chosen[i] = true;
    pthread_mutex_init(&job->lock, NULL);
}

void job_free(struct job *job)
{
    topology_free(&job->topology);
    pthread_mutex_destroy(&job->lock);
}

/* ---- what must come out ---------------------------------------------------------------------------------
 */

const struct reference *reference_take(struct job *job, int phase)
{
    pthread_mutex_lock(&job->lock);
    if (!job->users[phase]) {
        job->users[phase] = job->layout.mpi ? 1 : job->layout.size;
        const struct phase *program = &job->phases[phase];
        reference_make(&job->references[phase], program, &job->layout,
                       &job->chosen[program->steps[0].number]);
    }
    pthread_mutex_unlock(&job->lock);
    return &job->references[phase];
}

void reference_let_go(struct job *job, int phase)
{
    pthread_mutex_lock(&job->lock);
    if (!--job->users[phase])
        reference_free(&job->references[phase]);
    pthread_mutex_unlock(&job->lock);
}

/* ---- running --------------------------------------------------------------------------------------------
 */

static void run_member(struct member *member)
{
    struct job *job = member->argument;
    struct runner runner = {.member = member, .job = job};
    runner.state = random_mix(job->wishes.seed + (uint64_t)job->wishes.job) + (uint64_t)member->rank * 977;
    for (int i = 0; i < job->phase_count; i++)
        run_phase(&runner, i);
    hvd_request last = request_of(HVD_BARRIER, "last", NULL); /* nobody leaves before */
    CHECK_OK(hvd_run(member->context, &last, NULL, &check_status));
}

void job_run(struct job *job)
{
    struct group_options options = {.transport = job->transport, .settings = job->settings};
    options.hosts = job->layout.hosts[0] ? job->layout.hosts : NULL;
    group_run(&options, job->layout.size, run_member, job);
}

void job_print(const struct job *job)
{
    fprintf(stderr, "  job %d of seed %llu: %d ranks over %s, hosts", job->wishes.job,
            (unsigned long long)job->wishes.seed, job->layout.size, job->layout.mpi ? "MPI" : job->transport);
    for (int rank = 0; rank < job->layout.size; rank++)
        fprintf(stderr, " %s", job->layout.hosts[rank] ? job->layout.hosts[rank] : "-");
    for (int i = 0; i < job->setting_count; i += 2)
        fprintf(stderr, ", %s %s", job->settings[i], job->settings[i + 1]);
    fprintf(stderr, "\n");
}
