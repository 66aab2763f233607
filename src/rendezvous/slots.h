/* slots.h - what the slots of an elastic job and their starter send each other between epochs: a slot reports
 * how far it is, the starter publishes news for it. All of it is in a job of its own at the rendezvous, whose
 * only epoch is 0, so no epoch of the job drops it. The driver's functions are in horovod.h:
 * hvd_rendezvous_send_news, hvd_rendezvous_watch_slots and hvd_rendezvous_forget_slot. */
#ifndef HVD_RENDEZVOUS_SLOTS_H
#define HVD_RENDEZVOUS_SLOTS_H

#include "rendezvous/client.h"

#define SLOT_REASON_LIMIT 256
#define SLOT_REPORT_LIMIT 64

/* The latest news for a slot. */
struct slot_news {
    hvd_news_kind kind;
    int epoch, rank, size;
    int notice; /* bits of hvd_notice */
    char reason[SLOT_REASON_LIMIT];
};

/* Returns false if the bytes are malformed. */
bool slot_news_decode(struct slot_news *news, const uint8_t *bytes, size_t length);

/* How far a slot is. */
enum slot_report_kind { SLOT_UNKNOWN, SLOT_ENTERED, SLOT_READY, SLOT_WAITS, SLOT_HAS_DONE };

struct slot_report {
    enum slot_report_kind kind;
    bool leaves;          /* it was asked to leave, in addition to that or alone */
    int after, lost_rank; /* of SLOT_WAITS: the last epoch, and which rank it has lost there; -1: none */
    bool holds_state;     /* the same: it could hand on the state of the training */
};

/* Returns false if the text makes no sense. */
bool slot_report_read(struct slot_report *report, const void *text, size_t length);

/* Enters the job of the slots; must be called first. */
hvd_code slots_enter(struct rendezvous_client *client, const char *job, hvd_status *status);
/* Replaces the last report of the slot; unless it is "done", it becomes empty when the client's connection
 * ends. */
hvd_code slots_report(struct rendezvous_client *client, const char *slot, const char *report,
                      int64_t deadline, hvd_status *status);
/* Waits for newer news; *seen as rendezvous_follow says. HVD_MISMATCH: they are malformed; *seen and *news
 * stay what they were, so the next call finds the same ones or newer ones. */
hvd_code slots_follow(struct rendezvous_client *client, const char *slot, uint32_t *seen, int64_t deadline,
                      struct slot_news *news, hvd_status *status);

#endif
