/* drive.pml - the protocol of src/engine/drive.c: which thread makes progress, which ones sleep, and what wakes them.
 * With IN_SET also how src/transport suspends the idle mesh of a process set, and how a message resumes it.
 *
 * Each step is one sequentially consistent operation of the C code, together with accesses to memory that only the
 * thread that makes progress uses. A comment between bars, function and statement, quotes the C code; test_model.py
 * refuses a quote that is no longer in the source, and an atomic operation of drive.c that is not quoted.
 *
 * Not covered: orders weaker than sequentially consistent, spurious returns of futex_wait, heartbeats (they would
 * hide a lost wake-up for seconds), and the length of time limits: a thread may stop polling and yielding after any
 * turn.
 *
 * A scenario includes this file. It defines how many operations there are and what each needs, and has the user
 * threads. A state in which no thread can continue is an error unless each user thread has ended. */

#ifndef OPERATIONS
#define OPERATIONS 2
#endif
#ifndef FROM_PEER /* operations that need data of the peer; sets are masks, 1 << operation */
#define FROM_PEER 0
#endif
#ifndef LOCAL_STEP /* that have, once the data are here, a step left for which no peer rings */
#define LOCAL_STEP 0
#endif
#ifndef TIMED /* that are flushed at a time, with the data or without */
#define TIMED 0
#endif
#ifndef CALLS_BACK /* that have a `done` function */
#define CALLS_BACK 0
#endif
#ifndef CALLBACK /* what that does */
#define CALLBACK skip
#endif
#ifndef HELD_BACK /* that use the memory of operation 0: they start after its end; none is FROM_PEER */
#define HELD_BACK 0
#endif
#ifndef BLOCKING /* that a back end whose library blocks runs, one at a time: a caller that waits, or its worker */
#define BLOCKING 0
#endif
#ifndef ENDS_AFTER /* messages that must have been answered before the one that is run, `current`, ends */
#define ENDS_AFTER 0
#endif
#ifndef MESSAGES /* messages of the coordination that the peers send, and wait for an answer to: from MESSAGE on */
#define MESSAGES 0
#endif
#ifndef SECOND_PEER /* what another peer sends */
#define SECOND_PEER 0
#endif
/* MARKED: a peer sets its mark in the reader's segment behind a message; the reader looks at the rings of marked peers only
 * (more neighbours than MESH_POLLED_NEIGHBOURS). */
/* IN_SET: operations and messages of a process set, whose communicator is suspended when it is idle; all others are of the
 * world, whose mesh is the hub. Without it there is no such set. */

#define FLUSH_TIME 1 /* of the timed operations */
#define NEVER      2 /* CLOCK_NEVER */

#define bit(i)  (1 << (i))
#define CLOSED  OPERATIONS       /* context->closed, as one more handle */
#define MESSAGE (OPERATIONS + 1) /* the first; on channel 0: as one more operation that is always wanted */
#define LOCK    (OPERATIONS + 1) /* the progress lock, as a futex word */
#define NOTHING 255

#define THREADS 5 /* process numbers: the progress thread, the worker, peers, clock, user threads */

/* the progress lock */
#define UNLOCKED  0
#define LOCKED 1

/* handle->state */
#define HANDLE_IN_FLIGHT 0
#define HANDLE_AWAITED   1
#define HANDLE_DONE      2

/* Shared. */
byte progress_lock = UNLOCKED;
byte deadline = NEVER;
bool thread_waits;
byte waiters;
byte queue; /* a mask */
bool added;
bool returned; /* a caller has run a blocking operation */
bool leaving, stop;
bool ended; /* the progress thread */
byte state[OPERATIONS + 1];

/* Under the lock. */
bool polls_periodically, caller_active;
bool leave_said;
byte waiting;  /* operations taken, which wait for the peer or for a time */
byte steps;    /* which have a local step that can move */
byte finished; /* which end in this turn */
byte held;     /* operations held back */
bool adopted;

/* Of the worker, under its lock. */
byte todo, current, outcomes; /* blocking operations, masks */
bool delegated;
bool announced; /* its descriptor is readable */

/* The mesh, and the kernel. */
bool event = true; /* hvd_init: mesh_wake at the end */
byte arrived;      /* published by the peer, not yet received; a mask */
bool armed = true; /* shm: the hub's segment->memory->sleeping; tcp: the hub's poller is in the wake-up poller. hvd_init arms */
bool asleep;       /* tcp: the progress thread is in mesh_sleep */
bool doorbell;     /* shm: a byte in the socket */
byte ready;        /* tcp: what the sockets' poller knows; a mask */
byte readable;     /* tcp: and the links know; a mask; under the lock */
#ifdef IN_SET
bool set_armed;     /* shm: segment->memory->sleeping of the set's mesh */
bool set_suspended; /* under the lock */
bool signaled;          /* the bit of the set, and of its word, in the hub's segment */
bool any_signaled;
byte bits; /* under the lock: the ones that were taken */
#else
#define IN_SET        0
#define set_armed     false
#define set_suspended false
#define any_signaled      false
#define NO_SET
#endif
byte marks;    /* of the peers, in the segment of the mesh that the messages are for */
byte reported; /* under the lock: the marks that were taken, of links that are still to be read */
byte sleeps_on[THREADS] = NOTHING; /* the futex word of each sleeping thread */
byte now;                          /* 0 before FLUSH_TIME */

/* For the properties. */
byte holders;
byte answered; /* messages; a mask */

#define awaited      ((waiting & FROM_PEER) | MESSAGES | bit(CLOSED))
#define runs         (set_suspended -> ~IN_SET : 255) /* of the running communicators */
#define is_quiet     (!waiting && !steps)
#define set_is_idle  (!((waiting | steps | held) & IN_SET)) /* |comm_suspend: comm_is_quiet(comm)| */
#define next_flush   ((waiting & TIMED) -> FLUSH_TIME : NEVER)

#ifdef TCP
#define all_news     (arrived & readable & awaited)
#define wakes   (event || (armed && (announced || ready)))
#define kernel_news  ready
#define stays_armed  (armed && !asleep) /* |mesh_disarm: atomic_load_explicit(&mesh->hub->asleep| |mesh_disarm: mesh_mask(mesh->hub)| */
#else
#ifdef MARKED
#define all_news     ((arrived & awaited & ~MESSAGES) | ((marks | reported) -> MESSAGES : 0))
#else
#define all_news     (arrived & awaited)
#endif
#define wakes   (event || announced || doorbell)
#define kernel_news  doorbell
#define stays_armed  false
#endif
#define any_news     ((all_news & runs) || any_signaled) /* |mesh_arm: !any_news(mesh) && !hub->resumed| |mesh_arm: atomic_load(hub->signaled)| */

#define peer_of(what) ((what & SECOND_PEER) -> 2 : 1)
#define readable_messages \
    (((reported & 1) -> MESSAGES & ~SECOND_PEER : 0) | ((reported & 2) -> MESSAGES & SECOND_PEER : 0))

/* Of every thread: the results of the functions below. */
#define LOCALS                                                                                               \
    bool moved, quiet, periodic, news, sooner, left, pending, mine, looks, claimed;                                        \
    byte calls, taken, each

/* ---- base/futex.c ---------------------------------------------------------------------------------------- */

inline futex_wait(word, value, expected, timeout_passed)
{
    atomic {
        if
        :: value == expected -> sleeps_on[_pid] = word
        :: else
        fi
    }
    (sleeps_on[_pid] == NOTHING || (timeout_passed)) -> sleeps_on[_pid] = NOTHING
}

inline wake_all(word) /* in a step */
{
    each = 0;
    do
    :: each < THREADS ->
        if
        :: sleeps_on[each] == word -> sleeps_on[each] = NOTHING
        :: else
        fi;
        each++
    :: else -> break
    od;
    each = 0
}

/* ---- engine/progress.c ---------------------------------------------------------------------------------- */

#ifdef TCP
/* |mesh_poll: platform_poller_read(hub->poller| |tcp_ready: mesh_resume_for_news(tcp->peer->mesh)| */
#define mesh_poll resume(ready & IN_SET); readable = readable | ready; ready = 0
#else
#define mesh_poll doorbell = false /* |shm_poll: platform_receive_with_fd(shm->doorbell| */
#endif

#ifdef NO_SET
#define resume(news)      skip
#define suspend_if_idle() skip
#define resume_signaled()       skip
#else
inline resume(for_it) /* in a step */
{
    if
    :: set_suspended && (for_it) ->
        set_suspended = false; /* |comm_resume: comm->suspended = false| */
        set_armed = false      /* |mesh_resume: set_sleeping(mesh, false)| */
    :: else
    fi
}

inline suspend_if_idle()
{
    if
    :: atomic { set_is_idle && !set_suspended -> /* |comm_suspend: mesh_suspend(comm->mesh)| */
        set_armed = true };              /* |mesh_suspend: set_sleeping(mesh, true)| */
        d_step {
            /* |mesh_suspend: mesh->suspended = !mesh->unreported && !mesh->listed && !any_news(mesh)| */
            set_suspended = !(all_news & IN_SET);
            set_armed = set_suspended /* |mesh_suspend: set_sleeping(mesh, false)| */
        }
    :: else
    fi
}

inline resume_signaled()
{
    if
    :: atomic { any_signaled ->   /* |mesh_next_resumed: atomic_load_explicit(hub->signaled| */
        any_signaled = false };  /* |shm_resume_signaled: atomic_exchange(&memory->any_signaled, 0)| */
        d_step {
            bits = signaled;
            signaled = false;    /* |shm_resume_signaled: atomic_exchange(&memory->signaled[word], 0)| */
            resume(bits);    /* |shm_resume_signaled: mesh_resume_for_news(mesh)| */
            bits = 0
        }
    :: else
    fi
}
#endif

#ifdef MARKED
inline gather_news() /* in a step */
{
    if
    :: !(set_suspended && (MESSAGES & IN_SET)) -> /* |mesh_collect_news: gather_news(mesh)| */
        reported = reported | marks;
        marks = 0 /* |shm_collect_marks: atomic_exchange(&marks[word], 0)| */
    :: else
    fi
}
#else
#define gather_news() skip
#endif

inline mesh_wake()
{
    event = true /* |mesh_wake: platform_event_set(hub->event)| */
}

inline choose_look()
{
    if
    :: kernel_news -> looks = true
    :: looks = false
    fi
}

/* A turn. Each thing that it reads or writes belongs to another thread, which cares for no other: to do all at once
 * leaves out no order that matters. Only some turns look at the kernel, a thread at random ones. */
inline progress()
{
#ifndef NO_SET /* step by step: here a peer that writes into the set's ring may come between */
    d_step {
        if
        :: looks -> mesh_poll
        :: else
        fi
    }
    if
    :: looks -> looks = false; suspend_if_idle() /* |turn: progress_suspend(context, IDLE_TURNS)| */
    :: !looks
    fi;
    resume_signaled(); /* |turn: mesh_next_resumed(context->world->mesh)| */
#endif
#ifdef MARKED
    d_step { gather_news() }
#endif
    d_step {
        assert(holders == 1);
        if
        :: looks -> mesh_poll /* |turn: context->drive.turns++ % TURNS_PER_POLL| */
        :: else
        fi;
        looks = false;
        moved = queue != 0; /* |hand_over_submissions: newest = atomic_exchange(&context->queue, NULL)| */
        resume(queue & IN_SET); /* |comm_submit: comm_resume(comm)| */
        held = held | (queue & HELD_BACK); /* |hand_over: before->held_back = handle| */
        waiting = waiting | (queue & ~HELD_BACK);
        todo = todo | (queue & BLOCKING); /* |worker_start: collective_queue_push(&worker->todo| */
        queue = 0;
        adopted = adopted || added; /* |comm_list_adopt: atomic_exchange(&context->added, NULL)| */
        added = false;
        leave_said = leave_said || leaving; /* |turn: &context->leaving| */
        moved = moved || steps || returned; /* |turn: atomic_exchange(&context->returned, false)| */
        returned = false;
        finished = steps | outcomes; /* |worker_progress: report(worker, &ended, NULL)| */
        outcomes = 0;
        announced = false; /* |worker_progress: platform_event_clear(worker->descriptor)| */
        steps = 0;
        taken = arrived & awaited & runs; /* |ring_available: atomic_load_explicit(&ring->memory->head| */
#ifdef TCP
        taken = taken & readable;
        readable = readable & ~(awaited & runs); /* read until there is no more */
#endif
#ifdef MARKED
        taken = taken & (~MESSAGES | readable_messages);
        reported = 0;
#endif
        arrived = arrived & ~taken;
        moved = moved || taken;
        answered = answered | (taken & MESSAGES);
        finished = finished | (taken & waiting & ~LOCAL_STEP);
        steps = taken & waiting & LOCAL_STEP;
        finished = finished | (now >= FLUSH_TIME -> waiting & TIMED : 0);
        if
        :: taken & bit(CLOSED) -> /* whatever is left ends with an error */
            finished = finished | waiting | steps | held | bit(CLOSED);
            steps = 0;
            held = 0
        :: else
        fi;
        moved = moved || finished;
        waiting = waiting & ~(finished | steps);
        if
        :: held && !((waiting | steps) & bit(0)) ->
            steps = steps | held; /* |progress_resume: hand_over_all(context, released)| */
            held = 0
        :: else
        fi;
        quiet = is_quiet;
        calls = finished & CALLS_BACK;
        taken = 0;
        do
        :: finished & bit(taken) ->
            finished = finished & ~bit(taken);
            if
            :: state[taken] == HANDLE_AWAITED -> wake_all(taken) /* |handle_finish: futex_wake_all(&handle->state)| */
            :: else
            fi;
            state[taken] = HANDLE_DONE /* |handle_finish: atomic_exchange(&handle->state, HANDLE_DONE| */
        :: finished && !(finished & bit(taken)) -> taken++
        :: else -> break
        od;
        taken = 0
    }
}

/* ---- engine/drive.c ------------------------------------------------------------------------------------- */

#ifdef NO_SET
#define disarm_set            skip
#define arm_set               skip
#define suspend_before_arming(comes_back) skip
#else
#define disarm_set set_armed = set_armed && set_suspended
#define arm_set                                                                                              \
    if                                                                                                       \
    :: !periodic && !set_suspended -> set_armed = true                                                       \
    :: periodic || set_suspended                                                                             \
    fi
#define suspend_before_arming(comes_back) /* |arm: progress_suspend(context, 0)| */                          \
    if                                                                                                       \
    :: polls_periodically && (quiet || comes_back)                                                           \
    :: !(polls_periodically && (quiet || comes_back)) -> suspend_if_idle()                                   \
    fi
#endif

/* A peer that rings between compare-and-swap and disarming is one that read the word before and rings late. */
inline lock_try()
{
    d_step { /* the first load, |lock_try: atomic_load_explicit(&drive->lock|, only spares the other */
        /* |lock_try: atomic_compare_exchange_strong(&drive->lock, &expected, LOCKED)| */
        mine = progress_lock == UNLOCKED;
        if
        :: mine ->
            progress_lock = LOCKED;
            holders++;
            assert(holders == 1);
            quiet = is_quiet;
            disarm_set; /* |disarm: mesh_disarm(comm->mesh)| */
            armed = stays_armed /* |lock_try: disarm(context)| |mesh_disarm: set_sleeping(mesh, false)| */
        :: else
        fi
    }
}

inline wake_lock_waiter()
{
    d_step {
        if
        :: thread_waits -> /* |wake_lock_waiter: atomic_load(&drive->thread_waits)| */
            wake_all(LOCK) /* |wake_lock_waiter: futex_wake_all(&drive->lock)| */
        :: else
        fi
    }
}

inline lock_release(comes_back)
{
    suspend_before_arming(comes_back);
    d_step {
        /* |lock_release: bool periodic = drive->polls_periodically && (quiet || comes_back)| */
        periodic = polls_periodically && (quiet || comes_back);
        /* |mesh_arm: set_sleeping(mesh, true)| |mesh_arm: mask(mesh->hub, false)| |lock_release: mesh_mask(context->world->mesh)| */
        armed = !periodic
    }
    arm_set;
    d_step {
        if
        :: !periodic -> gather_news() /* |any_news: gather_news(mesh)| */
        :: else
        fi;
        news = !periodic && (any_news || steps); /* |arm: mesh_arm(comm->mesh) && !comm_is_ready(comm)| */
        left = leave_said; /* |lock_release: bool left = context->leave_said| */
        /* |lock_release: deadline < atomic_exchange(&drive->deadline, deadline) && !periodic| */
        sooner = next_flush < deadline && !periodic;
        deadline = next_flush;
        delegated = delegated || (todo && !periodic) /* |arm: worker_delegate(comm->backends.workers)| */
    }
    d_step { progress_lock = UNLOCKED; holders-- } /* |lock_release: atomic_store(&drive->lock, UNLOCKED)| */
    if
    :: !periodic -> wake_lock_waiter() /* |lock_release: wake_lock_waiter(context)| */
    :: periodic
    fi;
    if
    :: sooner -> mesh_wake() /* |lock_release: mesh_wake(context->world->mesh)| */
    :: !sooner
    fi;
    d_step {
        /* |lock_release: atomic_load(&context->queue) || atomic_load(&context->added)| */
        /* |lock_release: atomic_load(&context->returned) || (!left && atomic_load(&context->leaving))| */
        pending = news || queue || added || returned || (!left && leaving);
        periodic = false;
        news = false;
        sooner = false;
        left = false
    }
}

inline drive_notify()
{
    if
    :: atomic { progress_lock == UNLOCKED -> /* |drive_notify: atomic_load(&drive->lock) != UNLOCKED| */
        mesh_wake() };  /* |drive_notify: mesh_wake(context->world->mesh)| */
        wake_lock_waiter() /* |drive_notify: wake_lock_waiter(context)| */
    :: progress_lock != UNLOCKED
    fi
}

inline push(operation)
{
    d_step { queue = queue | bit(operation) } /* |queue_request: atomic_compare_exchange_weak(&context->queue| */
}

inline hvd_submit(operation)
{
    push(operation);
    drive_notify() /* |api_submit: drive_notify(context)| */
}

/* Leaves `mine` false when another thread took over. */
inline run_finished_calls()
{
    if
    :: calls ->
        lock_release(false); /* |run_finished_calls: lock_release(context, false)| */
        pending = false;
        CALLBACK; /* |run_finished_calls: call_finished(handles)| */
        calls = 0;
        lock_try() /* |run_finished_calls: lock_try(context)| */
    :: !calls
    fi
}

#define library_returns ((answered & ENDS_AFTER) == ENDS_AFTER)

inline take() /* in a step */
{
    current = todo & (todo ^ (todo - 1));
    todo = todo & ~current;
    delegated = delegated && todo
}

/* `gives_up`: the caller's deadline is over. `may_block`: it runs what blocks. */
inline progress_as_caller(word, gives_up, may_block)
{
    caller_active = true; /* |progress_as_caller: drive->caller_active = true| */
    do
    :: atomic { state[word] != HANDLE_DONE -> /* |progress_as_caller: atomic_load_explicit(word| */
        choose_look() };
        progress();
        run_finished_calls();
        if
        :: !mine -> break
        :: mine && moved && !(gives_up)
        :: atomic { mine && !moved && may_block && todo && !current && !(gives_up) -> /* |progress_as_caller: (may_block && (claimed = claim(context)))| */
            take(); /* |worker_claim: worker->todo.head && !worker->current| */
            claimed = true };
            break
        :: mine && !moved && !(may_block && todo && !current) && !(gives_up) /* |progress_as_caller: !backoff_step(&backoff)| */
        :: mine && !moved && !(may_block && todo && !current) && !(gives_up) -> break
        :: mine && (gives_up) -> break
        fi
    :: state[word] == HANDLE_DONE -> break
    od;
    moved = false;
    if
    :: mine && !quiet -> /* |progress_as_caller: is_quiet(context)| */
        choose_look();
        progress();
        moved = false;
        run_finished_calls()
    :: !mine || quiet
    fi;
    if
    :: mine ->
        lock_release(claimed); /* |progress_as_caller: lock_release(context, claimed != NULL)| */
        if
        :: pending -> drive_notify() /* |progress_as_caller: drive_notify(context)| */
        :: !pending
        fi;
        pending = false
    :: !mine
    fi;
    mine = false;
    quiet = false
}

inline wait_for_lock(word)
{
    waiters++; /* |wait_for_lock: atomic_fetch_add(&drive->waiters, 1)| */
    do
    :: state[word] == HANDLE_DONE -> break /* |wait_for_lock: atomic_load_explicit(word| */
    :: state[word] != HANDLE_DONE ->
        lock_try(); /* |wait_for_lock: mine = lock_try(context)| */
        if
        :: mine -> break
        :: !mine
        :: !mine -> break /* |wait_for_lock: backoff_step(&backoff)| */
        fi
    od;
    waiters-- /* |wait_for_lock: atomic_fetch_sub(&drive->waiters, 1)| */
}

inline drive_until(word, gives_up)
{
    do
    /* |drive_until: while (claimed || atomic_load_explicit(word, memory_order_acquire) != value)| */
    :: !claimed && state[word] == HANDLE_DONE -> break
    :: claimed || state[word] != HANDLE_DONE ->
        claimed = false;
        lock_try(); /* |drive_until: lock_try(context)| */
        if
        :: !mine -> wait_for_lock(word)
        :: mine
        fi;
        if
        :: mine -> progress_as_caller(word, gives_up, true)
        :: !mine
        fi;
        if
        :: claimed ->
            atomic { library_returns; /* |drive_until: worker_run(claimed)| */
                outcomes = outcomes | current;
                current = 0 };
            returned = true /* |drive_until: atomic_store(&context->returned, true)| */
        :: !claimed && (gives_up) -> break
        :: !claimed && !(gives_up) -> /* a load that sees HANDLE_DONE, or a CAS that fails, goes round the loop */
            d_step { /* |drive_until: atomic_compare_exchange_strong(word, &seen, HANDLE_AWAITED)| */
                if
                :: state[word] == HANDLE_IN_FLIGHT -> state[word] = HANDLE_AWAITED
                :: else
                fi
            }
            futex_wait(word, state[word], HANDLE_AWAITED, gives_up) /* |drive_until: futex_wait(word| */
        fi
    od
}

/* Leaves in `polls` whether the thread polls periodically. */
inline progress_in_thread()
{
    do
    :: true ->
        choose_look();
        progress();
        run_finished_calls();
        if
        :: !mine -> polls = true; break
        /* |progress_in_thread: atomic_load_explicit(&drive->waiters| |progress_in_thread: backoff_step(&backoff)| */
        :: mine && !waiters
        :: mine && (!moved || waiters) ->
            d_step {
                moved = false;
                polls = caller_active;
                polls_periodically = caller_active; /* |progress_in_thread: drive->polls_periodically = drive->caller_active| */
                caller_active = false /* |progress_in_thread: drive->caller_active = false| */
            }
            lock_release(false); /* |progress_in_thread: lock_release(context, false)| */
            if
            :: pending -> mesh_wake() /* |progress_in_thread: mesh_wake(context->world->mesh)| */
            :: !pending
            fi;
            pending = false;
            break
        fi
    od;
    moved = false;
    mine = false;
    quiet = false
}

inline wait_for_release()
{
    thread_waits = true; /* |wait_for_release: atomic_store(&drive->thread_waits, 1)| */
    futex_wait(LOCK, progress_lock, LOCKED, polls); /* |wait_for_release: futex_wait(&drive->lock, LOCKED| */
    thread_waits = false /* |wait_for_release: atomic_store(&drive->thread_waits, 0)| */
}

/* run_progress_thread */
active proctype progress_thread()
{
    bool polls;
    byte until;
    LOCALS;
    do
    :: stop -> break /* |run_progress_thread: atomic_load(&drive->stop)| */
    :: else ->
        lock_try(); /* |run_progress_thread: lock_try(context)| */
        if
        :: mine -> progress_in_thread()
        :: !mine -> wait_for_release()
        fi;
        if
        :: stop || progress_lock != UNLOCKED /* |run_progress_thread: atomic_load(&drive->lock) != UNLOCKED| */
        :: else ->
            until = deadline; /* |run_progress_thread: atomic_load(&drive->deadline)| */
#ifdef TCP
            asleep = true; /* |mesh_sleep: atomic_store_explicit(&hub->asleep, true| */
#endif
end_asleep:
            /* |mesh_sleep: platform_poller_wait(hub->wake_poller, hub->event, deadline)| */
            (wakes || polls || now >= until) -> until = 0;
            event = false; /* |mesh_sleep: platform_event_clear(hub->event)| */
            asleep = false /* |mesh_sleep: atomic_store_explicit(&hub->asleep, false| */
        fi
    od;
    ended = true
}

#if BLOCKING
/* work of backend/worker.c */
active proctype worker()
{
end_idle:
    do
    :: atomic { delegated && !current -> take() };
        atomic { library_returns;
            outcomes = outcomes | current;
            current = 0;
            announced = true /* |run_current: platform_event_set(worker->descriptor)| */ }
    od
}
#endif

/* ---- the world around ----------------------------------------------------------------------------------- */

inline wake_if_sleeping()
{
    if
    :: armed -> /* |wake_if_sleeping: atomic_load(sleeping)| */
        if
        :: atomic { armed -> armed = false }; /* |wake_if_sleeping: atomic_exchange(sleeping, 0)| */
            doorbell = true /* |wake_if_sleeping: ring_doorbell(shm)| */
        :: else
        fi
    :: else
    fi
}

inline publish(what)
{
#ifdef TCP
    d_step { arrived = arrived | what; ready = ready | what } /* the kernel's */
#else
    arrived = arrived | what; /* |copy_piece: ring_write(&shm->out| */
#ifdef MARKED
    if
    :: what & MESSAGES -> marks = marks | peer_of(what) /* |mark_news: atomic_fetch_or(&memory->marks| */
    :: else
    fi;
#endif
#ifndef NO_SET
    if
    :: what & IN_SET ->
        if
        :: atomic { set_armed -> set_armed = false }; /* |wake_if_sleeping: ring_hub(shm)| */
            signaled = true;        /* |ring_hub: atomic_fetch_or(&memory->signaled[bit / 64]| */
            any_signaled = true;    /* |ring_hub: atomic_fetch_or(&memory->any_signaled| */
            wake_if_sleeping()  /* |ring_hub: wake_if_sleeping(shm->hub)| */
        :: else
        fi
    :: else -> wake_if_sleeping()
    fi
#else
    wake_if_sleeping()
#endif
#endif
}

inline send_all(messages)
{
    left = messages;
    do
    :: left ->
        if
        :: left & bit(0) -> one = 0
        :: left & bit(1) -> one = 1
        :: left & bit(2) -> one = 2
        :: left & bit(3) -> one = 3
        fi;
        left = left & ~bit(one);
        publish(bit(one));
        if
        :: bit(one) & MESSAGES -> answered & bit(one)
        :: else
        fi
    :: else -> break
    od
}

active proctype peer()
{
    byte left, one;
    send_all((FROM_PEER | MESSAGES) & ~SECOND_PEER);
#ifdef SHUTDOWN
    leave_said;
    publish(bit(CLOSED))
#endif
}

#if SECOND_PEER
active proctype second_peer()
{
    byte left, one;
    send_all(SECOND_PEER)
}
#endif

#if TIMED || defined(LIMITED)
active proctype time()
{
    now = FLUSH_TIME
}
#endif

/* ---- engine/api.c: calls of user threads -------------------------------------------------------------- */

inline hvd_wait(operation)
{
    drive_until(operation, false) /* |hvd_wait: drive_until(handle->context, &handle->state| */
}

/* With a time limit; afterwards the operation may be done or not. */
inline hvd_wait_limited(operation)
{
    drive_until(operation, now >= FLUSH_TIME)
}

inline hvd_help(operation)
{
    lock_try(); /* |drive_once: lock_try(context)| */
    if
    :: mine -> progress_as_caller(operation, now >= FLUSH_TIME, false)
    :: !mine
    fi
}

inline hvd_run(operation)
{
    push(operation);
    hvd_wait(operation)
}

/* A thread that asks again and again whether it is done. */
inline hvd_test(operation)
{
    state[operation] == HANDLE_DONE
}

/* The last part of hvd_process_set_add: the other members wait until this rank is there. */
inline hand_over()
{
    added = true; /* |finish_opening: atomic_compare_exchange_weak(&context->added| */
    drive_notify() /* |finish_opening: drive_notify(context)| */
}

inline hvd_shutdown()
{
    leaving = true; /* |hvd_shutdown: atomic_store(&context->leaving, true)| */
    drive_notify(); /* |hvd_shutdown: drive_notify(context)| */
    drive_until(CLOSED, false); /* |hvd_shutdown: drive_until(context, &context->closed| */
    stop = true; /* |drive_stop_thread: atomic_store(&drive->stop, true)| */
    mesh_wake(); /* |drive_stop_thread: mesh_wake(context->world->mesh)| */
    ended /* |drive_stop_thread: pthread_join(drive->thread, NULL)| */
}
