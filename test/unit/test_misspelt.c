/* test_misspelt.c - variables that are spelt almost like Horovod's are found, and no others. */
#include "base/misspelt.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

static void note(void *owner, const char *name, const char *right)
{
    char *text = owner;
    snprintf(text + strlen(text), 1024 - strlen(text), "%s%s>%s", *text ? " " : "", name, right);
}

static void check(char *const *environment, const char *expected)
{
    char text[1024] = "";
    misspelt_variables(environment, note, text);
    assert_string_equal(text, expected);
}

#define CHECK(expected, ...) check((char *[]){__VA_ARGS__, NULL}, expected)

TEST(test_misspelt_names)
{
    CHECK("HOROVOD_FUSION_TRESHOLD>HOROVOD_FUSION_THRESHOLD", "HOROVOD_FUSION_TRESHOLD=1", "PATH=/bin");
    CHECK("HOROVOD_RNAK>HOROVOD_RANK HOROVOD_SIZ>HOROVOD_SIZE", "HOROVOD_RNAK=0", "HOROVOD_SIZ=2");
    CHECK("HOROVD_TIMELINE>HOROVOD_TIMELINE horovod_timeline>HOROVOD_TIMELINE", "HOROVD_TIMELINE=x",
          "horovod_timeline=x");
    CHECK("HOROVODTIMELINE>HOROVOD_TIMELINE HOROVOD-SIZE>HOROVOD_SIZE", "HOROVODTIMELINE=x",
          "HOROVOD-SIZE=2");
    CHECK("HOROVOD_STALL_CHECK_TIME_SECS>HOROVOD_STALL_CHECK_TIME_SECONDS",
          "HOROVOD_STALL_CHECK_TIME_SECS=9");
    CHECK("HOROVOD_GLOO_TIMEOUT_SECOND>HOROVOD_GLOO_TIMEOUT_SECONDS", "HOROVOD_GLOO_TIMEOUT_SECOND=9");
}

TEST(test_names_of_options)
{
    CHECK("HOROVOD_CYCLE_TIME_MS>HOROVOD_CYCLE_TIME", "HOROVOD_CYCLE_TIME_MS=1");
    CHECK("HOROVOD_AUTOTUNE_LOG_FILE>HOROVOD_AUTOTUNE_LOG", "HOROVOD_AUTOTUNE_LOG_FILE=x");
    CHECK("HOROVOD_FUSION_THRESHOLD_MB>HOROVOD_FUSION_THRESHOLD", "HOROVOD_FUSION_THRESHOLD_MB=1");
}

TEST(test_no_false_alarm)
{
    CHECK("", "HOROVOD_RANK=0", "HOROVOD_RANKS=0,1", "HOROVOD_JOIN=all", "HOROVOD_JOB=x",
          "HOROVOD_CONTROLLER=mpi", "HOROVOD_NCCL_LIB=x", "HOROVOD_TEST_FUL=1", "HOROVOD_WITH_PYTORCH=1",
          "HOROVOD_HOSTNAME=a");
    /* Of other programs, of nobody, and without a value. */
    CHECK("", "HOROVOD_IMAGE=x", "HOROVOD_TASK=1", "HOROVOD_HOSTS=a", "HOROVOD_MODE=x", "HOROVOD_NUM_PROC=4",
          "HOROVOD_EPOCHS=9", "HOROVOD_GPUS=0,1", "HOROVOD_CPU=1", "HOROVOD_SLOTS=2", "HOROVOD_JOBS=1",
          "HOROVOD_=1", "HOROVOD=1", "_=HOROVOD_SIZ", "HOROVOD_SIZ=", "HOROVOD_SIZ");
}
