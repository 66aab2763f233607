/* pi.c - n ranks compute π together, from C alone.
 *
 *     horovodrun -np 4 build/examples/c/pi            (without horovodrun: one rank does it all)
 *
 * π is the area under 4 / (1 + x²) between 0 and 1. The area is cut into strips, each rank adds up every
 * size-th one, and one allreduce adds the ranks' sums. Built against an installed Horovod: cc pi.c -lhorovod
 * -lm -o pi */
#include <horovod.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define PI 3.14159265358979323846

/* Every function of horovod.h that can fail says why in a status. */
static void check(hvd_code code, const hvd_status *status)
{
    if (code != HVD_OK) {
        fprintf(stderr, "%s: %s\n", hvd_code_name(code), status->text);
        exit(EXIT_FAILURE);
    }
}

static double add_strips(long strips, int rank, int size)
{
    double sum = 0, width = 1.0 / (double)strips;
    for (long i = rank; i < strips; i += size) {
        double x = ((double)i + 0.5) * width;
        sum += 4 / (1 + x * x);
    }
    return sum * width;
}

/* Replaces *value on every rank by the sum of all ranks' values. */
static void sum_over_ranks(hvd_context *context, const char *name, double *value)
{
    hvd_status status;
    hvd_tensor tensor = {.data = value, .ndim = 0, .dtype = HVD_FLOAT64, .device_type = HVD_CPU};
    hvd_request request = {.struct_size = sizeof request,
                           .operation = HVD_ALLREDUCE,
                           .name = name,
                           .count = 1,
                           .inputs = &tensor,
                           .reduction = HVD_SUM};
    check(hvd_run(context, &request, NULL, &status), &status);
}

int main(int argc, char **argv)
{
    long strips = argc > 1 ? strtol(argv[1], NULL, 10) : 10000000;
    if (argc > 2 || strips < 1) {
        fprintf(stderr, "usage: %s [strips]\n", argv[0]);
        return 2;
    }

    hvd_context *context;
    hvd_status status;
    check(hvd_init(NULL, &context, &status), &status);
    hvd_placement place = hvd_get_placement(context);

    double own = add_strips(strips, place.rank, place.size), pi = own;
    sum_over_ranks(context, "pi", &pi);
    printf("rank %d of %d: my strips %.15f, all strips %.15f\n", place.rank, place.size, own, pi);
    if (place.rank == 0)
        printf("error %.1e\n", fabs(pi - PI));

    hvd_shutdown(context);
    return fabs(pi - PI) < 1.0 / (double)strips ? EXIT_SUCCESS : EXIT_FAILURE;
}
