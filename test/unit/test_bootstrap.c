/* test_bootstrap.c - which files hold a secret that nobody else can read. */
#include "bootstrap/bootstrap.h"
#include "test.h"

#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { USER = 65534, GROUP = 4242 };

/* Reads a file as a user other than root, in one more group; skipped unless root runs the test. */
static hvd_code read_as_user(uid_t owner, gid_t group, mode_t mode, gid_t own_group, hvd_status *status)
{
    char path[] = "/tmp/horovod-secret-XXXXXX";
    struct settings settings;
    int file = mkstemp(path);
    assert_true(file >= 0 && write(file, "0123\n", 5) == 5);
    assert_int_equal(fchown(file, owner, group), 0);
    assert_int_equal(fchmod(file, mode), 0);
    close(file);
    ASSERT_OK(settings_init(&settings, &check_status));
    ASSERT_OK(settings_set(&settings, setting_by_key("secret_file"), path, "test", &check_status));
    assert_int_equal(setgroups(1, &own_group), 0);
    assert_int_equal(setegid(USER), 0);
    assert_int_equal(seteuid(USER), 0);
    hvd_code code = bootstrap_read_secret(&settings, status);
    assert_int_equal(seteuid(0), 0);
    assert_int_equal(setegid(0), 0);
    assert_int_equal(setgroups(0, NULL), 0);
    assert_true(code || strcmp(settings.secret, "0123") == 0);
    unlink(path);
    settings_free(&settings);
    return code;
}

TEST(secret_files)
{
    if (geteuid() != 0)
        skip();
    ASSERT_OK(read_as_user(USER, USER, 0600, USER, &check_status));
    /* A Secret of Kubernetes, with an fsGroup. */
    ASSERT_OK(read_as_user(0, GROUP, 0640, GROUP, &check_status));
    ASSERT_OK(read_as_user(0, GROUP, 0440, GROUP, &check_status));
    ASSERT_OK(read_as_user(0, USER, 0440, GROUP, &check_status));
    ASSERT_FAILS(read_as_user(0, GROUP, 0660, GROUP, &check_status), HVD_INVALID_ARGUMENT,
                 "can be read by others");
    ASSERT_FAILS(read_as_user(0, GROUP, 0644, GROUP, &check_status), HVD_INVALID_ARGUMENT,
                 "can be read by others");
    ASSERT_FAILS(read_as_user(USER, GROUP, 0640, GROUP, &check_status), HVD_INVALID_ARGUMENT,
                 "can be read by others");
    ASSERT_FAILS(read_as_user(1, GROUP, 0640, GROUP, &check_status), HVD_INVALID_ARGUMENT,
                 "belongs to user 1; it must belong to you or to root");
}
