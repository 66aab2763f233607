/* fuzz_http.c - any bytes as a request of HTTP, in pieces. First byte: their length. No request sees a page
 * that needs the token without having it. */
#include "launch/http_request.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define TOKEN "0123456789abcdef"

static void check(const struct http_request *request)
{
    static const char *const names[] = {"localhost", NULL};
    bool link;
    for (int local = 0; local < 2; local++) {
        const struct http_access access = {
            .token = TOKEN, .cookie = "horovod", .names = names, .local = local};
        bool knows = memmem(request->bytes, request->used, TOKEN, strlen(TOKEN));
        if (http_request_check(request, &access, HTTP_PAGE_PRIVATE, &link) == HTTP_OK && !knows)
            abort();
        if (http_request_check(request, &access, HTTP_PAGE_METRICS, &link) == HTTP_OK && !knows && !local)
            abort();
    }
    struct http_text path = http_request_path(request);
    if (!path.length || *path.at != '/' || path.at < request->bytes ||
        path.at + path.length > request->bytes + request->used)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    static struct http_request request;
    enum http_code code = HTTP_MORE;
    size_t piece = length ? (size_t)bytes[0] + 1 : 1;
    http_request_init(&request);
    for (size_t at = 1, count; code == HTTP_MORE && at < length; at += count) {
        size_t room = sizeof request.bytes - request.used;
        count = length - at < piece ? length - at : piece;
        count = count < room ? count : room;
        memcpy(request.bytes + request.used, bytes + at, count);
        code = http_request_read(&request, count);
    }
    if (code == HTTP_OK)
        check(&request);
    return 0;
}
