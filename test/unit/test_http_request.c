/* test_http_request.c - which requests of HTTP are understood, and which may see a page. */
#include "../../launch/http_request.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

#define TOKEN "0123456789abcdef0123456789abcdef"

static const char *const names[] = {"localhost", "b", NULL};
static const struct http_access network = {.token = TOKEN, .cookie = "horovod_a61c", .names = names};
static const struct http_access loopback = {
    .token = TOKEN, .cookie = "horovod_a61c", .names = names, .local = true};

/* Reads the text in pieces of this many bytes, until it is complete or wrong. */
static enum http_code read_pieces(struct http_request *request, const char *text, size_t piece)
{
    enum http_code code = HTTP_MORE;
    size_t left = strlen(text);
    http_request_init(request);
    while (code == HTTP_MORE && left) {
        size_t count = left < piece ? left : piece;
        memcpy(request->bytes + request->used, text, count);
        code = http_request_read(request, count);
        text += count;
        left -= count;
    }
    return code;
}

static void reads(const char *text, enum http_code expected)
{
    struct http_request request;
    for (size_t piece = 1; piece <= strlen(text); piece++)
        assert_int_equal(read_pieces(&request, text, piece), expected);
}

static enum http_code check(const char *headers, const struct http_access *access, enum http_page_kind kind)
{
    struct http_request request;
    char text[1024];
    bool link;
    snprintf(text, sizeof text, "%s\r\n\r\n", headers);
    assert_int_equal(read_pieces(&request, text, 7), HTTP_OK);
    return http_request_check(&request, access, kind, &link);
}

TEST(test_a_request_in_any_pieces)
{
    const char *text = "GET /metrics?a=b HTTP/1.1\r\nX-Long: none\r\nHOST: b:9400\r\nCookie: \r\n\r\n";
    struct http_request request;
    for (size_t piece = 1; piece <= strlen(text); piece++) {
        assert_int_equal(read_pieces(&request, text, piece), HTTP_OK);
        assert_true(http_text_is(http_request_path(&request), "/metrics"));
        assert_true(http_text_is(request.host, "b:9400"));
        assert_int_equal(request.cookie.length, 0);
    }
}

TEST(test_what_is_no_request)
{
    reads("GET / HTTP/1.1\r\nHost: b\r\n", HTTP_MORE);
    reads("hello\r\n\r\n", HTTP_BAD_REQUEST);
    reads("\x16\x03\x01\x02", HTTP_BAD_REQUEST); /* TLS */
    reads("GET / HTTP/9.9.9\r\n\r\n", HTTP_BAD_REQUEST);
    reads("GET / HTTP/1.1\r\n\r\n", HTTP_BAD_REQUEST); /* no host */
    reads("GET / HTTP/1.1\r\nHost: b\r\nHost: c\r\n\r\n", HTTP_BAD_REQUEST);
    reads("GET http://b/ HTTP/1.1\r\nHost: b\r\n\r\n", HTTP_BAD_REQUEST);
    reads("POST / HTTP/1.1\r\nHost: b\r\nContent-Length: 3\r\n\r\nabc", HTTP_NOT_ALLOWED);
    reads("HEAD / HTTP/1.1\r\nHost: b\r\n\r\n", HTTP_NOT_ALLOWED);
}

TEST(test_a_request_that_is_too_long)
{
    struct http_request request;
    http_request_init(&request);
    const char *start = "GET / HTTP/1.1\r\nHost: b\r\nX: ";
    memset(request.bytes, 'x', sizeof request.bytes);
    memcpy(request.bytes, start, strlen(start));
    assert_int_equal(http_request_read(&request, sizeof request.bytes - 1), HTTP_MORE);
    assert_int_equal(http_request_read(&request, 1), HTTP_TOO_LARGE);
}

TEST(test_metrics_are_open_to_this_host_only)
{
    const char *plain = "GET /metrics HTTP/1.1\r\nHost: localhost:9400";
    assert_int_equal(check(plain, &loopback, HTTP_PAGE_METRICS), HTTP_OK);
    assert_int_equal(check(plain, &network, HTTP_PAGE_METRICS), HTTP_UNAUTHORIZED);
    const char *right = "GET /metrics HTTP/1.1\r\nHost: b\r\nAuthorization: Bearer " TOKEN;
    assert_int_equal(check(right, &network, HTTP_PAGE_METRICS), HTTP_OK);
    assert_int_equal(check(right, &loopback, HTTP_PAGE_METRICS), HTTP_OK);
    const char *wrong = "GET /metrics HTTP/1.1\r\nHost: b\r\nAuthorization: Bearer 1" TOKEN;
    assert_int_equal(check(wrong, &network, HTTP_PAGE_METRICS), HTTP_UNAUTHORIZED);
    assert_int_equal(check(wrong, &loopback, HTTP_PAGE_METRICS), HTTP_UNAUTHORIZED);
    /* The token in a link would end up in logs. */
    const char *link = "GET /metrics?token=" TOKEN " HTTP/1.1\r\nHost: b";
    assert_int_equal(check(link, &network, HTTP_PAGE_METRICS), HTTP_UNAUTHORIZED);
}

TEST(test_other_pages_need_the_token)
{
    static const struct {
        const char *headers;
        enum http_code code;
    } cases[] = {
        {"GET / HTTP/1.1\r\nHost: b", HTTP_FORBIDDEN},
        {"GET /?token=" TOKEN " HTTP/1.1\r\nHost: b", HTTP_OK},
        {"GET /?token=" TOKEN "0 HTTP/1.1\r\nHost: b", HTTP_FORBIDDEN},
        {"GET /?token= HTTP/1.1\r\nHost: b", HTTP_FORBIDDEN},
        {"GET / HTTP/1.1\r\nHost: b\r\nCookie: horovod_a61c=" TOKEN, HTTP_OK},
        {"GET / HTTP/1.1\r\nHost: b\r\nCookie: a=1; horovod_a61c=" TOKEN "; b=2", HTTP_OK},
        {"GET / HTTP/1.1\r\nHost: b\r\nCookie: horovod_other=" TOKEN, HTTP_FORBIDDEN},
        {"GET / HTTP/1.1\r\nHost: b\r\nCookie: horovod_a61c", HTTP_FORBIDDEN},
        {"GET / HTTP/1.1\r\nHost: b\r\nCookie: ;;=; horovod_a61c=", HTTP_FORBIDDEN},
        {"GET / HTTP/1.1\r\nHost: b\r\nAuthorization: bearer  " TOKEN, HTTP_OK},
        {"GET / HTTP/1.1\r\nHost: b\r\nAuthorization: Basic " TOKEN, HTTP_FORBIDDEN},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(check(cases[i].headers, &loopback, HTTP_PAGE_PRIVATE), cases[i].code);
        assert_int_equal(check(cases[i].headers, &network, HTTP_PAGE_PRIVATE), cases[i].code);
    }
}

TEST(test_other_hosts_are_refused)
{
    static const struct {
        const char *host;
        enum http_code code;
    } cases[] = {
        {"localhost", HTTP_OK},
        {"LOCALHOST:9400", HTTP_OK},
        {"b:9400", HTTP_OK},
        {"127.0.0.1:9400", HTTP_OK},
        {"[::1]:9400", HTTP_OK},
        {"10.0.0.7", HTTP_OK},
        {"evil.example", HTTP_FORBIDDEN},
        {"b.evil", HTTP_FORBIDDEN},
        {"localhost.evil:80", HTTP_FORBIDDEN},
        {"[::1", HTTP_OK},
        {"[b]", HTTP_OK},
        {":9400", HTTP_FORBIDDEN},
        {"127.0.0.1.evil", HTTP_FORBIDDEN},
    };
    char text[256];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(text, sizeof text, "GET /metrics HTTP/1.1\r\nHost: %s", cases[i].host);
        assert_int_equal(check(text, &loopback, HTTP_PAGE_METRICS), cases[i].code);
        snprintf(text, sizeof text, "GET /?token=" TOKEN " HTTP/1.1\r\nHost: %s", cases[i].host);
        assert_int_equal(check(text, &loopback, HTTP_PAGE_PRIVATE), cases[i].code);
    }
    /* No page of a foreign site can send this header, so a proxy may give the host any name. */
    const char *bearer = "GET /metrics HTTP/1.1\r\nHost: metrics.cluster\r\nAuthorization: Bearer " TOKEN;
    assert_int_equal(check(bearer, &network, HTTP_PAGE_METRICS), HTTP_OK);
}
